"""What the points of a class are worth: weights, due dates, and what lateness costs."""
