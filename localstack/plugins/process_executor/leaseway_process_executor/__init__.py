"""Lambda functions as processes of this machine, for LocalStack without Docker."""
