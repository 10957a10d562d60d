"""What a partition holds, and its steps as rows: pure, without a broker."""
