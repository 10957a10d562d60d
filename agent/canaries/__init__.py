"""`ragmeter canary`: a suite of questions with right answers, sent to a service on a schedule."""
