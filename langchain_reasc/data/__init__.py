"""What is asked: questions with their right answers, from files, and the text around each."""
