# shellcheck shell=sh
# Functions for the shell in which you do the exercises: . ./labs.sh

# IMAGE is what the pods of the exercises run. It needs sh, sleep, wget and httpd of busybox.
export IMAGE="${IMAGE:-busybox:1.37}"

# ssh reaches the machines by name, as ssh_config in the current directory says.
ssh() { command ssh -F ssh_config ${K8S_SSH_PRIVATE_KEY_FILE:+-i "$K8S_SSH_PRIVATE_KEY_FILE"} "$@"; }

# leader LEASE prints the machine that holds a lease in kube-system.
leader() { kubectl get lease -n kube-system "$1" -o 'jsonpath={.spec.holderIdentity}' | cut -d_ -f1; }

# eventually SECONDS COMMAND... repeats a command until it succeeds, and then prints what it has printed. It fails
# when the time is over.
eventually() {
  end=$(($(date +%s) + $1))
  shift
  until printed=$("$@" 2>&1); do
    if [ "$(date +%s)" -ge "$end" ]; then
      printf '%s\nfailed until the time was over: %s\n' "$printed" "$*"
      return 1
    fi
    sleep 0.5
  done
  [ -z "$printed" ] || printf '%s\n' "$printed"
}
