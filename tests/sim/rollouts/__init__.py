"""Thousands of simulated rollouts: how often a good version is rolled back, how soon a bad one."""
