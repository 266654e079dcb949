"""Rollouts: what decides whether a new version takes the traffic."""
