package kube

import (
	"strings"
	"testing"
)

// TestFollowFailedJob: a Job that has already failed is not waited for: nothing happens to it any more.
func TestFollowFailedJob(t *testing.T) {
	run := newRun(object(t, "{apiVersion: batch/v1, kind: Job, metadata: {name: migrate, namespace: x, uid: a}, spec: {ttlSecondsAfterFinished: 60}, "+
		"status: {conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded, message: too often}]}}"))
	f := (&Client{}).follow(t.Context(), run)
	if _, done, err := f.status(); done || err == nil || !strings.Contains(err.Error(), "Job x/migrate: failed: BackoffLimitExceeded: too often") || !f.ended() {
		t.Errorf("done %v: %v", done, err)
	}
}
