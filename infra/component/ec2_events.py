#!/usr/bin/python3
# ec2-events NODE SERVER CA CERTIFICATE KEY METADATA [rebalance]
#
# Asks METADATA, the instance metadata service (http://169.254.169.254), every
# few seconds what EC2 has announced about this instance: the interruption of a
# Spot instance, a scheduled reboot or stop and, with "rebalance", a
# recommendation to replace a Spot instance. When the time has come, NODE gets
# no new pods, and its pods are evicted through the API server at SERVER, as
# the kubelet whose CERTIFICATE and KEY these are. PodDisruptionBudgets hold. If
# the instance is to end, they hold in the first half of the time that is left,
# and afterwards the pods that are still there are deleted. Pods of DaemonSets,
# static pods and pods that are made later stay. A node that this script has
# closed is opened again when nothing is announced any more, such as after a
# reboot. A person may open it before, unless the instance is to end.
import collections
import datetime
import email.utils
import http.client
import json
import os
import ssl
import sys
import time
import urllib.parse

POLL = 5  # seconds between two looks at the metadata service
RETRY = 2  # seconds between two rounds of evictions
LEAD = 300  # seconds before a scheduled event at which the node is drained
SETTLE = 10  # seconds after the node was closed at which the scheduler knows
CHECK = 60  # seconds between two looks at a node for which nothing is announced
TOKEN = 300  # seconds that a token of the metadata service is valid
MARK = "k8s-from-scratch/ec2-event"  # the event for which this script has closed the node
DECLINED = MARK + "-declined"  # the events for which a person has opened it, with commas between
CORDONED = "k8s-from-scratch/cordoned"  # the provider has closed the node, and opens it
REBOOTS = ("instance-reboot", "system-reboot", "system-maintenance")  # the machine comes back by itself
PARTIAL_CHAIN = getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)  # Python 3.10 has a name for it

# An event. EC2 does not begin before the time begins, which is None if it is not
# known. If final, the machine then ends.
Event = collections.namedtuple("Event", "name text begins final")


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


class Metadata:
    def __init__(self, url):
        self.host, self.token = urllib.parse.urlsplit(url).netloc, None

    def call(self, method, path, headers):
        return request(http.client.HTTPConnection(self.host, timeout=2), method, "/latest/" + path, headers)

    def get(self, path):
        """Returns the text at a path, None if there is none."""
        for _ in range(2):
            if self.token is None:
                status, body = self.call("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN)})
                if status != 200:
                    raise OSError("the metadata service gives no token: status %d" % status)
                self.token = body.decode()
            status, body = self.call("GET", "meta-data/" + path, {"X-aws-ec2-metadata-token": self.token})
            if status != 401:
                break
            self.token = None  # it has expired
        if status == 404:
            return None
        if status != 200:
            raise OSError("the metadata service answers with status %d" % status)
        return body.decode()

    def event(self, rebalance):
        """Returns the most urgent event for which the node is to be empty, None without one."""
        action = self.get("spot/instance-action")
        if action is not None:
            end = datetime.datetime.strptime(json.loads(action)["time"], "%Y-%m-%dT%H:%M:%SZ")
            end = end.replace(tzinfo=datetime.timezone.utc).timestamp()
            return Event("spot-interruption", "EC2 interrupts this Spot instance", end, True)
        due = [e for e in scheduled(self.get("events/maintenance/scheduled") or "[]") if e.begins <= time.time() + LEAD]
        if due:
            return min(due, key=lambda e: (not e.final, e.begins))
        if rebalance and self.get("events/recommendations/rebalance") is not None:
            return Event("rebalance-recommendation", "EC2 recommends to replace this Spot instance", None, False)
        return None


def scheduled(text):
    """Returns the scheduled events that are still to come. EC2 shows an event as active for a while after a reboot."""
    booted = boot_time()
    for e in json.loads(text):
        if e.get("State") != "active":
            continue
        begins = email.utils.parsedate_to_datetime(e["NotBefore"]).timestamp()
        if begins > booted:
            yield Event(e["EventId"], "EC2 has scheduled %s of this instance" % e["Code"], begins, e["Code"] not in REBOOTS)


def boot_time():
    """Returns when the machine, which may be a container, was started, in seconds since 1970."""
    with open("/proc/1/stat") as f:
        ticks = int(f.read().rpartition(")")[2].split()[19])
    with open("/proc/stat") as f:
        kernel = next(int(line.split()[1]) for line in f if line.startswith("btime"))
    return kernel + ticks / os.sysconf("SC_CLK_TCK")


class API:
    def __init__(self, node, server, ca, certificate, key):
        self.node, self.server = "/api/v1/nodes/" + node, urllib.parse.urlsplit(server)
        self.name, self.ca, self.certificate, self.key = node, ca, certificate, key
        self.version = None  # of the node, when it was last read
        self.others = None  # the event that found the node closed by a person
        self.told = {}  # what was last said of each pod that stays

    def call(self, method, path, body=None, kind="application/json"):
        """Returns the status and the object of an answer."""
        context = ssl.create_default_context(cafile=self.ca)
        # The authority may be an intermediate, which is the only anchor of a node.
        context.verify_flags = context.verify_flags & ~ssl.VERIFY_X509_STRICT | PARTIAL_CHAIN
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

    def state(self):
        """Returns whether the node is closed, and its annotations."""
        node = self.must("GET", self.node)
        self.version = node["metadata"].get("resourceVersion")
        return node.get("spec", {}).get("unschedulable", False), node["metadata"].get("annotations", {})

    def change(self, annotations, **spec):
        change = {"metadata": {"annotations": annotations, "resourceVersion": self.version}, "spec": spec}
        self.must("PATCH", self.node, change, "application/merge-patch+json")

    def close(self, event):
        """Closes the node, and returns whether its pods are to leave, and whether it was open."""
        closed, notes = self.state()
        mark = notes.get(MARK)
        if not event.final:
            declined = [name for name in notes.get(DECLINED, "").split(",") if name]
            if event.name in declined:
                if mark is not None:  # of another event, which is over
                    self.open()
                return False, False
            if not closed and event.name in (mark, self.others):
                self.change({MARK: None, DECLINED: ",".join(declined[-4:] + [event.name])})
                say("the node %s was opened, and is left open" % self.name)
                return False, False
        if closed and mark is None and CORDONED not in notes:
            self.others = event.name
            return True, False
        if closed and mark == event.name:
            return True, False
        self.change({MARK: event.name}, unschedulable=True)
        if not closed:
            say("the node %s gets no new pods" % self.name)
        return True, not closed

    def open(self):
        """Opens the node if this script has closed it, but for a node that the provider has closed as well."""
        closed, notes = self.state()
        if MARK not in notes:
            return
        if CORDONED in notes:
            self.change({MARK: None})
            return
        self.change({MARK: None}, unschedulable=None)
        if closed:
            say("the node %s gets pods again: %s is over" % (self.name, notes[MARK]))

    def pods(self, since):
        """Returns the paths of the pods that are to leave, with whether they are about to. Pods that are made later stay: they
        have been put on a closed node, and so would be the next ones."""
        found = self.must("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D" + self.name)
        latest = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since + SETTLE))
        return [(path_of(p), "deletionTimestamp" in p["metadata"]) for p in found["items"]
                if leaves(p) and p["metadata"].get("creationTimestamp", "") <= latest]

    def ask_to_leave(self, path, evict):
        _, _, _, _, namespace, _, name = path.split("/")
        if not evict:
            status, body = self.call("DELETE", path)
        else:
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
            status, body = self.call("POST", path + "/eviction", eviction)
        if status // 100 == 2:
            say("%s/%s: %s" % (namespace, name, "evicted" if evict else "deleted"))
        elif status != 404:
            text = body.get("message", "status %d" % status)
            if self.told.get(path) != text:
                self.told[path] = text
                say("%s/%s: stays for now: %s" % (namespace, name, text))

    def drain(self, since, evict):
        """Asks the pods to leave, and reports whether there are any."""
        pods = self.pods(since)
        for path, leaving in pods:
            if not leaving:
                self.ask_to_leave(path, evict)
        return bool(pods)


def path_of(pod):
    return "/api/v1/namespaces/%s/pods/%s" % (pod["metadata"]["namespace"], pod["metadata"]["name"])


def leaves(pod):
    meta = pod["metadata"]
    if "kubernetes.io/config.mirror" in meta.get("annotations", {}):
        return False
    if any(o.get("controller") and o["kind"] == "DaemonSet" for o in meta.get("ownerReferences", [])):
        return False
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


class Watch:
    def __init__(self, api, metadata, rebalance):
        self.api, self.metadata, self.rebalance = api, metadata, rebalance
        self.event, self.known = None, False  # known: the metadata service has answered
        self.since, self.patience = None, None  # when the node was closed, and until when budgets hold
        self.checked = None  # when the node was last looked at without an event

    def look(self):
        event = self.metadata.event(self.rebalance)
        if event is not None and (self.event is None or event.name != self.event.name):
            self.since, self.patience, when = time.time(), None, ""
            if event.begins is not None:
                left = max(0, event.begins - self.since)
                when = " in %d seconds" % left
                if event.final:
                    self.patience = self.since + (left or LEAD) / 2
            say(event.text + when)
        self.event, self.known = event, True

    def act(self):
        """Does what is due, and reports whether there is more to do soon."""
        now = time.time()
        if self.event is not None:
            self.checked = None
            leave, closed = self.api.close(self.event)
            if closed:
                self.since = now
            return leave and self.api.drain(self.since, self.patience is None or now < self.patience) and self.event.final
        if self.known and (self.checked is None or now - self.checked >= CHECK):
            self.api.open()
            self.checked = now
        return False


def main(node, server, ca, certificate, key, metadata, *more):
    watch = Watch(API(node, server, ca, certificate, key), Metadata(metadata), "rebalance" in more)
    said = {}
    while True:
        soon = False
        for step in (watch.look, watch.act):
            try:
                soon, said[step] = step(), None
            except Exception as e:  # whatever an answer is like, the next one counts
                soon = watch.event is not None
                text = str(e) or type(e).__name__
                if text != said.get(step):
                    said[step] = text
                    say("trying again: %s" % text)
        time.sleep(RETRY if soon else POLL)


if __name__ == "__main__":
    main(*sys.argv[1:])
