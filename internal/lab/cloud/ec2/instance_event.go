package ec2

import (
	"fmt"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
)

// scheduledEvent is what EC2 has scheduled for an instance.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instances-status-check_sched.html
type scheduledEvent struct {
	ID, Code  string
	NotBefore time.Time
	Begun     bool      // a reboot: its machine goes down, or has gone down
	Done      time.Time // when it was completed or canceled; zero while it is active
	Canceled  bool
}

// eventCodes are the events that the local EC2 schedules, with their descriptions.
var eventCodes = map[string]string{
	codeReboot:            "scheduled reboot",
	"system-reboot":       "scheduled reboot",
	"instance-stop":       "The instance is running on degraded hardware",
	"instance-retirement": "The instance is running on degraded hardware",
}

const codeReboot = "instance-reboot"

const (
	// rebootWindow is how long after its begin a reboot may come, as EC2 says. Here it comes after rebootLate.
	rebootWindow = 2 * time.Hour
	rebootLate   = 10 * time.Second
	// eventLag is how long a reboot is shown as active after it was begun. AWS gives no figure.
	eventLag = 5 * time.Minute
	// eventShown is how long an event is shown that is over.
	eventShown = 7 * 24 * time.Hour
)

var reasonRetired = stateReason{"Server.ScheduledStop", "Server.ScheduledStop: Stopped due to scheduled retirement"}

func (e scheduledEvent) reboots() bool { return e.Code == codeReboot || e.Code == "system-reboot" }

// state is the event's in the instance metadata.
func (e scheduledEvent) state() string {
	switch {
	case e.Done.IsZero():
		return "active"
	case e.Canceled:
		return "canceled"
	}
	return "completed"
}

// description is the event's, with a note if it is over.
func (e scheduledEvent) description() string {
	return map[string]string{"active": "", "canceled": "[Canceled] ", "completed": "[Completed] "}[e.state()] + eventCodes[e.Code]
}

// ends is when the event has begun at the latest, zero if EC2 does not say.
func (e scheduledEvent) ends() time.Time {
	if e.reboots() {
		return e.NotBefore.Add(rebootWindow)
	}
	return time.Time{}
}

// Schedule schedules an event for an instance, which happens after a while.
func (c *Compute) Schedule(id, code string, after time.Duration) error {
	return c.update("", nil, func(t *tx) error {
		i := t.st.Instances[id]
		switch {
		case eventCodes[code] == "":
			return fmt.Errorf("there is no scheduled event %q", code)
		case i == nil || i.State != stateRunning:
			return fmt.Errorf("instance %s is not running", id)
		}
		e := scheduledEvent{ID: t.newID("instance-event"), Code: code, NotBefore: t.now.Add(after).Truncate(time.Second)}
		i.Events = append(i.Events, e)
		t.await(i, e)
		return nil
	})
}

// await carries out an active event when its time has come, and completes it.
func (t *tx) await(i *instance, e scheduledEvent) {
	at := e.NotBefore
	if e.reboots() {
		at = at.Add(rebootLate)
	}
	if e.Begun {
		at = at.Add(eventLag)
	}
	t.later(i.ID, at, func(t *tx, i *instance) {
		n := slices.IndexFunc(i.Events, func(x scheduledEvent) bool { return x.ID == e.ID && x.Done.IsZero() })
		if n < 0 {
			return // a user has canceled it
		}
		e := &i.Events[n]
		switch {
		case e.Begun || i.State != stateRunning:
		case e.reboots():
			i.powerOn()
			e.Begun = true
			t.afterCommit(func() { t.c.reboot(i.ID) })
			t.await(i, *e)
			return
		default:
			t.retire(i)
		}
		e.Done = t.now
	})
}

// retire stops an instance whose host is retired. A one-time Spot instance ends, since nothing can start it again.
func (t *tx) retire(i *instance) {
	if i.Spot != nil {
		i.set(stateShuttingDown, reasonRetired, reasonRetired.Code)
		t.afterCommit(func() { t.c.terminate(i.ID) })
		return
	}
	i.set(stateStopping, reasonRetired, reasonRetired.Code)
	t.afterCommit(func() { t.c.stop(i.ID, false) })
}

// outlived cancels what a user's start or reboot of an instance makes needless: a start puts it on another host.
func (i *instance) outlived(now time.Time, started bool) {
	for n := range i.Events {
		if e := &i.Events[n]; e.Done.IsZero() && now.Before(e.NotBefore) && (started || e.Code == codeReboot) {
			e.Done, e.Canceled = now, true
		}
	}
}

// events returns the events of an instance that are shown: all but those that are over for long.
func (t *tx) events(i *instance) (out []metadata.Event) {
	for _, e := range i.Events {
		if e.Done.IsZero() || t.now.Sub(e.Done) <= eventShown {
			out = append(out, metadata.Event{ID: e.ID, Code: e.Code, Description: e.description(), State: e.state(), NotBefore: e.NotBefore, NotAfter: e.ends()})
		}
	}
	return out
}

type eventItem struct {
	ID          string     `xml:"instanceEventId"`
	Code        string     `xml:"code"`
	Description string     `xml:"description"`
	NotBefore   time.Time  `xml:"notBefore"`
	NotAfter    *time.Time `xml:"notAfter,omitempty"`
}

func (t *tx) eventItems(i *instance) (out []eventItem) {
	for _, e := range t.events(i) {
		item := eventItem{ID: e.ID, Code: e.Code, Description: e.Description, NotBefore: e.NotBefore}
		if !e.NotAfter.IsZero() {
			item.NotAfter = &e.NotAfter
		}
		out = append(out, item)
	}
	return out
}

func ofEvents(f func(metadata.Event) string) func(*tx, *instance) []string {
	return func(t *tx, i *instance) (out []string) {
		for _, e := range t.events(i) {
			out = append(out, f(e))
		}
		return out
	}
}
