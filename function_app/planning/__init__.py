"""What a run will take and cost, before it is submitted: from earlier runs, or from published figures."""
