"""ROS 2 node that runs a plan on the messages of its sensors' topics; see docs/ros2.md."""
