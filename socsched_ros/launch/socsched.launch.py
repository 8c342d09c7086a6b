"""ros2 launch socsched.launch.py plan:=plan.json topics:='["lidar=/points"]': the node, started anew if it ends."""

from typing import List  # noqa: UP035

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.parameter_descriptions import ParameterValue

TEXTS = {"pipeline": "", "weights": "", "scales": ""}


def generate_launch_description() -> LaunchDescription:
    """Return the node with its parameters as arguments of the launch file."""
    arguments = [
        DeclareLaunchArgument("plan", description="plan.json of socsched"),
        DeclareLaunchArgument("topics", default_value='[""]', description="list of SENSOR=TOPIC"),
        *(DeclareLaunchArgument(name, default_value=default) for name, default in TEXTS.items()),
    ]
    parameters = {name: ParameterValue(LaunchConfiguration(name), value_type=str) for name in ("plan", *TEXTS)}
    parameters["topics"] = ParameterValue(LaunchConfiguration("topics"), value_type=List[str])  # noqa: UP006 (launch_ros knows this form)
    node = LifecycleNode(
        executable="python3",
        arguments=["-m", "socsched_ros"],
        name="socsched",
        namespace="",
        parameters=[parameters],
        respawn=True,
        respawn_delay=1.0,
    )
    return LaunchDescription([*arguments, node])
