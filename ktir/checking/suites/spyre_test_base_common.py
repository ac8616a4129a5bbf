"""What `TORCH_TEST_DEVICES` names: torch runs this file with the names of its own module of device tests."""

from ktir.checking.suites.steering import steered

TEST_CLASS = steered(globals()["device_type_test_bases"], globals()["PrivateUse1TestBase"])
