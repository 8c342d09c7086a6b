#!/bin/sh
# Runs this bundle on its board in real time. Needs a shell and the C library; no Python.
#   start.sh [RUN OPTIONS]           checks digests, runs the plan, writes results for `socsched report`, `why`, `compare`
#     --duration SECONDS             how long frames are released (10)
#     --frames N                     instead: N frames of the slowest sensor
#     --pace asap                    releases a frame when the one before has ended, however long that takes: no deadlines,
#                                    for emulators and debuggers
#     --realtime auto|fifo|off       fifo: real-time priorities, also where the plan leaves no processor free (auto: not there)
#     -o RESULTS                     the folder of results (results)
#     --keep N                       renames up to N earlier RESULTS to RESULTS.1, RESULTS.2, ... and removes older ones
#     --record                       board.csv in RESULTS: clocks and temperatures every second; tegrastats.log on a Jetson
#   start.sh --selftest              checks digests, decisions, and every stage on stored inputs and outputs
#   start.sh --profile FILE [--repeat N]   times every stage alone, N times (200): costs for `socsched plan --profile FILE`
#   start.sh --install-service       prints a systemd unit that runs the bundle, restarts it, and watches over it
# With any of these:
#     --apply-mode                   sets a Jetson to the plan's power mode before, and back afterwards
#     --max-clocks                   fixes the clocks at their highest before, and restores them afterwards
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
program="$here/@FOLDER@/$(uname -m)/@NAME@"
mode_of_plan="@MODE@" period_ns=@PERIOD@
action=run pace=rate horizon=10000000000 results=results realtime=auto keep=0 record= mode= clocks= profile= repeat=200
fail() { echo "error: $1" >&2; [ -z "${2:-}" ] || echo "  $2" >&2; exit "${3:-3}"; }
usage() { sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"; }
whole() { case "$2" in '' | *[!0-9]* | ???????*) fail "$1: expected a whole number" "" 2 ;; esac; }
while [ $# -gt 0 ]; do
    case "$1" in
        --duration) whole "$1" "${2:-}"; horizon="${2}000000000"; shift ;;
        --frames) whole "$1" "${2:-}"; horizon=$(($2 * period_ns)); shift ;;
        --keep) whole "$1" "${2:-}"; keep=$2; shift ;;
        --repeat) whole "$1" "${2:-}"; repeat=$2; shift ;;
        -o) results="${2:?-o needs a folder}"; shift ;;
        --pace)
            case "${2:-}" in rate | asap) pace=$2 ;; *) fail "$1: expected rate or asap" "" 2 ;; esac
            shift ;;
        --realtime)
            case "${2:-}" in auto | fifo | off) realtime=$2 ;; *) fail "$1: expected auto, fifo or off" "" 2 ;; esac
            shift ;;
        --record) record=yes ;;
        --selftest) action=selftest ;;
        --profile) action=profile; profile="${2:?--profile needs a file}"; shift ;;
        --install-service) action=service ;;
        --max-clocks) clocks=yes ;;
        --apply-mode)
            mode=$mode_of_plan
            [ -n "$mode" ] || fail "the plan has no power mode" "" 2 ;;
        --help | -h) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

if [ "$action" = service ]; then
    cat <<UNIT
# $here/start.sh --install-service | sudo tee /etc/systemd/system/socsched.service
# sudo systemctl daemon-reload && sudo systemctl enable --now socsched
[Unit]
Description=socsched: the plan in $here
After=multi-user.target

[Service]
Type=notify
NotifyAccess=all
WatchdogSec=10
ExecStart=/bin/sh "$here/start.sh" --duration 3600 --keep 24 -o /var/lib/socsched/results
StateDirectory=socsched
Restart=always
RestartSec=1
LimitRTPRIO=99
LimitMEMLOCK=infinity

[Install]
WantedBy=multi-user.target
UNIT
    exit 0
fi

[ -x "$program" ] || fail "no executor for $(uname -m) in @FOLDER@/: this bundle is for @MACHINES@" "compile the plan for this board"
"$program" --help >/dev/null || fail "the executor does not start here" "it needs glibc @GLIBC@ or later; this is $(getconf GNU_LIBC_VERSION 2>/dev/null || echo another C library)"
"$program" --check "$here/@SUMS@"
for artefact in @BUILT@; do
    [ -e "$here/$artefact" ] || fail "$artefact has not been built on this board" "run: sh $here/build.sh"
done

# What the board is set to is restored however this ends; a signal ends the program, then this script.
undo= child=
finish() {
    code=$?
    trap - EXIT
    if [ -n "$child" ]; then kill "$child" 2>/dev/null || :; wait "$child" 2>/dev/null || :; fi
    eval "$undo"
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if [ -n "$mode" ]; then
    command -v nvpmodel >/dev/null || fail "there is no nvpmodel here: this is no Jetson" "set the mode by the board's own tool, and leave out --apply-mode"
    before=$(nvpmodel -q) || fail "nvpmodel tells no mode" "run as root"
    before=${before##*[!0-9]}
    undo="nvpmodel -m $before; $undo"
    nvpmodel -m "$mode" </dev/null || fail "nvpmodel does not set mode $mode" "run as root"
    now=$(nvpmodel -q)
    [ "${now##*[!0-9]}" = "$mode" ] || fail "the board does not change to mode $mode" "it may need a reboot: sudo nvpmodel -m $mode"
fi
if [ -n "$clocks" ]; then
    if command -v jetson_clocks >/dev/null; then
        stored=$(mktemp)
        jetson_clocks --store "$stored" && undo="jetson_clocks --restore '$stored'; rm -f '$stored'; $undo"
        jetson_clocks || fail "jetson_clocks does not fix the clocks" "run as root"
    else
        fixed=
        for governor in "${SYSFS:-/sys}"/devices/system/cpu/cpufreq/policy*/scaling_governor; do
            [ -e "$governor" ] || continue
            old=$(cat "$governor")
            { echo performance >"$governor"; } 2>/dev/null || fail "$governor: cannot be written" "run as root"
            undo="echo $old >'$governor'; $undo"
            fixed=yes
        done
        [ -n "$fixed" ] || fail "this board has neither jetson_clocks nor cpufreq" "leave out --max-clocks"
    fi
fi

# Wait for the program in the background, so that a signal for this script reaches it at once.
attend() {
    "$@" &
    child=$!
    code=0
    wait "$child" || code=$?
    child=
    return "$code"
}

case "$action" in
    selftest)
        scratch=$(mktemp -d)
        undo="rm -rf '$scratch'; $undo"
        attend "$program" "$here/run.json" -o "$scratch" --virtual
        cp "$here/@SELFTEST@" "$scratch/expected"
        "$program" --check "$scratch/expected"
        [ ! -f "$here/@REFERENCES@" ] || attend "$program" "$here/run.json" --selftest "$here/@REFERENCES@"
        echo "selftest passed"
        exit 0 ;;
    profile)
        attend "$program" "$here/run.json" --selftest "$here/@REFERENCES@" --repeat "$repeat" --profile "$profile"
        echo "costs are in $profile: socsched plan PIPELINE -p @PLATFORM@ --profile $profile"
        exit 0 ;;
esac

# SCHED_FIFO and locked memory are used if they are permitted; without them jobs wait for other processes.
if [ "$(id -u 2>/dev/null || echo 0)" != 0 ] && [ "$(ulimit -r 2>/dev/null || echo 0)" = 0 ]; then
    user=$(id -un)
    echo "note: real-time priorities are not permitted: run as root, or once, then log in again:" >&2
    echo "  printf '$user - rtprio 99\\n$user - memlock unlimited\\n' | sudo tee /etc/security/limits.d/socsched.conf" >&2
fi
if [ "$keep" -gt 0 ] && [ -e "$results" ]; then
    rm -rf "$results.$keep"
    while [ "$keep" -gt 1 ]; do
        [ ! -e "$results.$((keep - 1))" ] || mv "$results.$((keep - 1))" "$results.$keep"
        keep=$((keep - 1))
    done
    mv "$results" "$results.1"
fi
mkdir -p "$results" || fail "$results: cannot be written" "name another folder: -o RESULTS"
cp "$here/plan.json" "$results/plan.json" || fail "$results: cannot be written" "free space, or name another folder: -o RESULTS"
if [ -n "$record" ]; then
    if command -v tegrastats >/dev/null; then
        tegrastats --interval 100 --logfile "$results/tegrastats.log" &
        undo="kill $! 2>/dev/null; $undo"
    fi
    (
        sys=${SYSFS:-/sys}
        echo "seconds,what,value"
        while :; do
            now=$(cut -d' ' -f1 /proc/uptime)
            for file in "$sys"/class/thermal/thermal_zone*/temp "$sys"/devices/system/cpu/cpufreq/policy*/scaling_cur_freq "$sys"/class/devfreq/*/cur_freq; do
                [ ! -r "$file" ] || echo "$now,${file#"$sys"/},$(cat "$file" 2>/dev/null || echo)"
            done
            sleep 1
        done
    ) >"$results/board.csv" &
    undo="kill $! 2>/dev/null; $undo"
fi
rm -f "$results/executed.json"
code=0
attend "$program" "$here/run.json" -o "$results" --horizon-ns "$horizon" --pace "$pace" --realtime "$realtime" || code=$?
if [ -e "$results/executed.json" ]; then
    sed -n 's/^\("accounts":{\)\{0,1\}"\(.*\)":{"released":\([0-9]*\),"completed":\([0-9]*\),"dropped":\([0-9]*\),"aborted":\([0-9]*\)}.*/\2: \3 frames released, \4 completed, \5 dropped, \6 aborted/p' "$results/executed.json"
    sed -n 's/^.*"notices":\["\(.*\)"\]}$/note: \1/p' "$results/executed.json" | sed 's/","/\
note: /g' >&2
    sed -n 's/^.*"failure":"\(..*\)","failed_stage":"\(.*\)","failed_frame":\([-0-9]*\),.*/error: \2, frame \3: \1/p' "$results/executed.json" >&2
    echo "results are in $results: socsched report $results"
fi
exit "$code"
