#!/usr/bin/python3
# spot-interruption NODE SERVER CA CERTIFICATE KEY METADATA
#
# Asks METADATA, the instance metadata service (http://169.254.169.254), every
# few seconds whether EC2 is about to interrupt this Spot instance. If it is,
# NODE gets no new pods, and its pods are evicted through the API server at
# SERVER, as the kubelet whose CERTIFICATE and KEY these are. In the first half
# of the time that is left, PodDisruptionBudgets hold. Then the pods that are
# still there are deleted. Pods of DaemonSets and static pods stay.
import datetime
import http.client
import json
import ssl
import sys
import time
import urllib.parse

POLL = 5  # seconds between two looks at the metadata service
RETRY = 2  # seconds between two rounds of evictions
TOKEN = 300  # seconds that a token of the metadata service is valid
CORDONED = "k8s-from-scratch/cordoned"  # the provider opens such a node again

token = None


def say(text):
    print(text, flush=True)


def request(connection, method, path, headers, body=None):
    """Returns status and body of an answer."""
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def metadata(host, method, path, headers):
    return request(http.client.HTTPConnection(host, timeout=2), method, path, headers)


def interruption(host):
    """Returns when the instance ends, in seconds since 1970; None if no interruption is known."""
    global token
    for _ in range(2):
        if token is None:
            status, body = metadata(host, "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN)})
            if status != 200:
                raise OSError("the metadata service gives no token: status %d" % status)
            token = body.decode()
        status, body = metadata(host, "GET", "/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
        if status != 401:
            break
        token = None  # it has expired
    if status == 404:
        return None
    if status != 200:
        raise OSError("the metadata service answers with status %d" % status)
    end = datetime.datetime.strptime(json.loads(body)["time"], "%Y-%m-%dT%H:%M:%SZ")
    return end.replace(tzinfo=datetime.timezone.utc).timestamp()


class API:
    def __init__(self, node, server, ca, certificate, key):
        self.node, self.server = node, urllib.parse.urlsplit(server)
        self.ca, self.certificate, self.key = ca, certificate, key

    def call(self, method, path, body=None, kind="application/json"):
        """Returns the status and the object of an answer."""
        context = ssl.create_default_context(cafile=self.ca)
        # The authority may be an intermediate, which is the only anchor of a node.
        context.verify_flags = context.verify_flags & ~ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_cert_chain(self.certificate, self.key)
        connection = http.client.HTTPSConnection(self.server.hostname, self.server.port, timeout=10, context=context)
        body = None if body is None else json.dumps(body)
        status, body = request(connection, method, path, {"Accept": "application/json", "Content-Type": kind}, body)
        try:
            return status, json.loads(body)
        except ValueError:
            return status, {}

    def must(self, *args):
        status, body = self.call(*args)
        if status // 100 != 2:
            raise OSError("%s %s: status %d: %s" % (args[0], args[1], status, body.get("message", "")))
        return body

    def cordon(self):
        path = "/api/v1/nodes/" + self.node
        if self.must("GET", path).get("spec", {}).get("unschedulable"):
            return
        change = {"metadata": {"annotations": {CORDONED: "true"}}, "spec": {"unschedulable": True}}
        self.must("PATCH", path, change, "application/merge-patch+json")
        say("the node %s gets no new pods" % self.node)

    def pods(self):
        """Returns the paths of the pods that are to leave, with whether they are about to."""
        found = self.must("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D" + self.node)
        return [(path_of(p), "deletionTimestamp" in p["metadata"]) for p in found["items"] if leaves(p)]


def path_of(pod):
    return "/api/v1/namespaces/%s/pods/%s" % (pod["metadata"]["namespace"], pod["metadata"]["name"])


def leaves(pod):
    meta = pod["metadata"]
    if "kubernetes.io/config.mirror" in meta.get("annotations", {}):
        return False
    if any(o.get("controller") and o["kind"] == "DaemonSet" for o in meta.get("ownerReferences", [])):
        return False
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def ask_to_leave(api, path, evict):
    _, _, _, _, namespace, _, name = path.split("/")
    if not evict:
        status, body = api.call("DELETE", path)
    else:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        status, body = api.call("POST", path + "/eviction", eviction)
    if status // 100 == 2:
        say("%s/%s: %s" % (namespace, name, "evicted" if evict else "deleted"))
    elif status != 404:
        say("%s/%s: stays for now: %s" % (namespace, name, body.get("message", "status %d" % status)))


def drain(api, end):
    """Asks the pods to leave until none is left, or the instance is to end."""
    patience = time.time() + (end - time.time()) / 2
    while True:
        try:
            api.cordon()
            pods = api.pods()
            if not pods:
                return
            for path, leaving in pods:
                if not leaving:
                    ask_to_leave(api, path, time.time() < patience)
        except (OSError, http.client.HTTPException, KeyError, ValueError) as e:
            say("trying again: %s" % e)
        if time.time() >= end:
            return
        time.sleep(RETRY)


def main(node, server, ca, certificate, key, host):
    host = urllib.parse.urlsplit(host).netloc
    api = API(node, server, ca, certificate, key)
    said, noticed = None, False
    while True:
        try:
            end = interruption(host)
            if end is not None:
                if not noticed:
                    say("EC2 interrupts this Spot instance in %d seconds" % max(0, end - time.time()))
                noticed = True
                drain(api, end)
            said = None
        except (OSError, http.client.HTTPException, KeyError, ValueError) as e:
            if str(e) != said:
                said = str(e)
                say(said)
        time.sleep(POLL)


if __name__ == "__main__":
    main(*sys.argv[1:])
