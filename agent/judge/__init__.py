"""Large language models as judges: how they are asked, what is asked, and what that may cost."""
