# Stops the kubelet, which would start containers again, and asks all containers to end (SIGTERM).
# It waits for them for a while and leaves those that do not end: kubelet, seconds.
PATH=$PATH:/usr/local/bin:/usr/sbin:/sbin
systemctl stop "$1" || exit
for task in $(ctr -n k8s.io tasks ls -q); do
	ctr -n k8s.io tasks kill --signal SIGTERM "$task"
done 2>/dev/null
end=$(($(date +%s) + $2))
while ctr -n k8s.io tasks ls | grep -q RUNNING && [ "$(date +%s)" -lt "$end" ]; do sleep 0.2; done
exit 0
