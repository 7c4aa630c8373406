set -eEuo pipefail
# Of the times below.
export TZ=UTC
trap 'echo "apply.sh: stopped at \"$BASH_COMMAND\". What was done stays done, and jobs that were held are on hold." >&2' ERR

fail() { trap - ERR; echo "apply.sh: $*" >&2; exit 1; }

declare -A job_state=() node_state=()
queue=$(squeue --noheader --array --format='%i %T') || fail "squeue does not answer; nothing was changed"
while read -r job state; do [ -z "$job" ] || job_state[$job]=$state; done <<<"$queue"
nodes=$(sinfo --noheader --Node --format='%N %T') || fail "sinfo does not answer; nothing was changed"
while read -r node state; do [ -z "$node" ] || node_state[$node]=$state; done <<<"$nodes"

expect() { # STATE JOBS...
    local job state
    for job in "${@:2}"; do
        state=${job_state[$job]:-gone}
        [ -z "${job_state[$job+0]:-}" ] ||
            fail "job $job is heterogeneous, and a plan says nothing of its components; nothing was changed"
        [ "$state" = "$1" ] || fail "job $job was planned as $1 and is $state now: plan again; nothing was changed"
    done
}

expect_up() { # HOSTLIST
    local names node state
    names=$(scontrol show hostnames "$1")
    for node in $names; do
        state=${node_state[$node]:-unknown}
        case $state in
        *'*' | *@ | *^ | down* | drain* | fail* | error* | future* | maint* | reboot* | unknown*)
            fail "node $node is $state now: plan again; nothing was changed" ;;
        esac
    done
}

is_waiting() { # JOB that was requeued: its nodes are given back within a minute
    local turn
    for ((turn = 0; turn < 60; turn++)); do
        [ "$(squeue --noheader --jobs="$1" --format=%T)" != PENDING ] || return 0
        sleep 1
    done
    fail "job $1 was requeued and does not wait; jobs that were held are on hold"
}

ask() { # JOB GPUS-PER-NODE GPUS UPDATES...: with the type that the job names, or without, as Slurm wants it
    local asked shown kind
    shown=$(scontrol show job "$1")
    kind=$(sed -n '/^ *TresPer/s/.*gpu:\([A-Za-z_][^:,]*\).*/\1:/p' <<<"$shown")
    kind=${kind%%$'\n'*}
    asked=()
    [[ -z $3 || $shown != *TresPerJob=* ]] || asked+=("TresPerJob=gres:gpu:$kind$3")
    [ -z "$2" ] || asked+=("Gres=gpu:$kind$2")
    [ -n "${asked[*]}" ] || fail "job $1 asks for GPUs per node, and gets different numbers; jobs that were held are on hold"
    scontrol update "JobId=$1" "${@:4}" "${asked[@]}"
}

reserve() { # CHANGE-OR-KEEP NAME SETTINGS...: what to do with one that is there already
    if ! scontrol show reservation "$2" >/dev/null 2>&1; then
        scontrol create reservation "ReservationName=$2" "${@:3}"
    elif [ "$1" = change ]; then
        scontrol update "ReservationName=$2" "${@:3}"
    else
        echo "reservation $2 is there already and stays as it is"
    fi
}

