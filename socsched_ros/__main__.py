"""`python -m socsched_ros --ros-args -p plan:=plan.json`."""

from socsched_ros.node import main

if __name__ == "__main__":
    main()
