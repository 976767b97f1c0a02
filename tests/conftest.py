"""What every test shares: Hypothesis settings that suit a busy machine."""

from hypothesis import HealthCheck, settings

# Time says nothing about correctness: no deadline, and a slow machine is no failure.
settings.register_profile("statebook", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("statebook")
