set -euo pipefail
# Of the times below.
export TZ=UTC

fail() { echo "apply.sh: $*" >&2; exit 1; }
tell() { "$@" || fail "stopped, since this failed: $*. What was done stays done, and jobs that were held are on hold"; }

declare -A job_state=() node_state=() left=()
queue=$(squeue --noheader --array --all --format='%i %T') || fail "squeue does not answer; nothing was changed"
while read -r job state; do [ -z "$job" ] || job_state[$job]=$state; done <<<"$queue"
nodes=$(sinfo --noheader --Node --all --format='%N %T') || fail "sinfo does not answer; nothing was changed"
while read -r node state; do [ -z "$node" ] || node_state[$node]=$state; done <<<"$nodes"

expect() { # STATE JOBS...
    local job state
    for job in "${@:2}"; do
        state=${job_state[$job]:-gone}
        if [ -n "${job_state[$job+0]:-}" ]; then
            left[$job]=1
            echo "job $job is heterogeneous: Slurm takes no nodes for its first component, and places it by itself"
        elif [ "$state" != "$1" ]; then
            fail "job $job was planned as $1 and is $state now: plan again; nothing was changed"
        fi
    done
}

expect_up() { # HOSTLIST
    local names node state
    names=$(scontrol show hostnames "$1") || fail "scontrol does not answer; nothing was changed"
    for node in $names; do
        state=${node_state[$node]:-unknown}
        case $state in
        *'*' | *@ | *^ | down* | drain* | fail* | error* | future* | maint* | reboot* | unknown*)
            fail "node $node is $state now: plan again; nothing was changed" ;;
        esac
    done
}

requeue() { # JOB, on hold; it waits within a minute
    local turn
    tell scontrol requeuehold Incomplete "$1"
    for ((turn = 0; turn < 60; turn++)); do
        [ "$(squeue --noheader --jobs="$1" --format=%T)" != PENDING ] || return 0
        sleep 1
    done
    fail "stopped, since job $1 was requeued and does not wait"
}

cancel() { tell scancel "$1"; }
hold() { [ -n "${left[$1]:-}" ] || tell scontrol hold "$1"; }
release() { [ -n "${left[$1]:-}" ] || tell scontrol release "$1"; }
rank() { [ -n "${left[$1]:-}" ] || tell scontrol update "JobId=$1" "Priority=$2"; }

steer() { # JOB GPUS-PER-NODE GPUS UPDATES...; numbers with the type that the job names, or without, as Slurm wants them
    local asked=() shown kind
    [ -z "${left[$1]:-}" ] || return 0
    if [ -n "$2$3" ]; then
        shown=$(scontrol show job "$1") || fail "stopped, since Slurm does not show job $1"
        kind=$(sed -n '/^ *TresPer/s/.*gpu:\([A-Za-z_][^:,]*\).*/\1:/p' <<<"$shown")
        kind=${kind%%$'\n'*}
        [[ -z $3 || $shown != *TresPerJob=* ]] || asked+=("TresPerJob=gres:gpu:$kind$3")
        [ -z "$2" ] || asked+=("Gres=gpu:$kind$2")
        [ -n "${asked[*]}" ] || fail "stopped, since job $1 asks for GPUs per node, and is to get different numbers"
    fi
    tell scontrol update "JobId=$1" "${@:4}" "${asked[@]}"
}

reserve() { # CHANGE-OR-KEEP NAME SETTINGS...: what to do with one that is there already
    if ! scontrol show reservation "$2" >/dev/null 2>&1; then
        tell scontrol create reservation "ReservationName=$2" "${@:3}"
    elif [ "$1" = change ]; then
        tell scontrol update "ReservationName=$2" "${@:3}"
    else
        echo "reservation $2 is there already and stays as it is"
    fi
}

