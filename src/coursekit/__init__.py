"""The learner's tool: for those who take the course."""
