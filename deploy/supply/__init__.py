"""What the project is made of: known vulnerabilities, secrets, the bill of materials."""
