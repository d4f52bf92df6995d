package etcd

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// histogram writes a histogram as etcd does. counts has the count of each bucket alone, not the
// cumulative ones.
func histogram(name string, counts ...int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# HELP %s x\n# TYPE %s histogram\n", name, name)
	sum, bound := 0, 0.001
	for i := range 14 {
		if i < len(counts) {
			sum += counts[i]
		}
		fmt.Fprintf(&b, "%s_bucket{le=\"%g\"} %d\n", name, bound, sum)
		bound *= 2
	}
	if len(counts) > 14 {
		sum += counts[14]
	}
	fmt.Fprintf(&b, "%s_bucket{le=\"+Inf\"} %d\n%s_sum 1.5\n%s_count %d\n", name, sum, name, name, sum)
	return b.String()
}

// trip writes the histogram of round trips to a member, all of which are in one bucket.
func trip(to string, bucket float64) string {
	var b strings.Builder
	for bound := 0.0001; bound < 4; bound *= 2 {
		count := 0
		if bound >= bucket {
			count = 50
		}
		fmt.Fprintf(&b, "%s_bucket{To=%q,le=\"%g\"} %d\n", tripHistogram, to, bound, count)
	}
	fmt.Fprintf(&b, "%[1]s_bucket{To=%[2]q,le=\"+Inf\"} 50\n%[1]s_sum{To=%[2]q} 1\n%[1]s_count{To=%[2]q} 50\n", tripHistogram, to)
	return b.String()
}

// TestMetrics reads histograms. One write in a hundred decides, and only when there were enough.
func TestMetrics(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tt := range []struct {
		name string
		text string
		want Disk
		slow bool
	}{
		{"none", "# TYPE other counter\nother 1\n", Disk{}, false},
		{"empty", histogram(syncHistogram), Disk{}, false},
		{"fast", histogram(syncHistogram, 9900, 0, 0, 100) + histogram(commitHistogram, 0, 0, 10), Disk{10000, ms, 4 * ms}, false},
		{"one in a hundred", histogram(syncHistogram, 9899, 0, 0, 101), Disk{10000, 8 * ms, 0}, false},
		{"at the limit", histogram(syncHistogram, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5000), Disk{5000, 512 * ms, 0}, false},
		{"slow", histogram(syncHistogram, 4900, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100), Disk{5000, 1024 * ms, 0}, true},
		{"slow, and few writes", histogram(syncHistogram, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1999), Disk{1999, 1024 * ms, 0}, false},
		{"off the scale", histogram(syncHistogram, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5000), Disk{5000, 16384 * ms, 0}, true},
	} {
		got, err := metricsOf(t.Context(), strings.NewReader(tt.text))
		if err != nil || got.Disk != tt.want || got.Disk.Slow() != tt.slow || len(got.trips) > 0 {
			t.Errorf("%s: %+v, slow %v, %v; wanted %+v", tt.name, got, got.Disk.Slow(), err, tt.want)
		}
	}
	if _, err := metricsOf(t.Context(), strings.NewReader("<html>")); err == nil {
		t.Error("a page was read as metrics")
	}
}

// TestRoundTrip: the farthest of the members counts, and none that has been removed.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	text := "# TYPE " + tripHistogram + " histogram\n" + trip("a1", 0.0008) + trip("b2", 0.0256) + trip("8e9e05c52164694d", 0.0004) + trip("no id", 0.4096)
	m, err := metricsOf(t.Context(), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	of := func(ids ...ID) (out []Member) {
		for _, id := range ids {
			out = append(out, Member{ID: id})
		}
		return out
	}
	for _, tt := range []struct {
		members []Member
		want    time.Duration
	}{
		{of(0x1, 0xa1, 0xb2), 25600 * time.Microsecond},
		{of(0x1, 0xa1, 0x8e9e05c52164694d), 800 * time.Microsecond},
		{of(0x1, 0x8e9e05c52164694d), 400 * time.Microsecond},
		{of(0x1), 0},
		{nil, 0},
	} {
		if got := m.RoundTrip(tt.members); got != tt.want {
			t.Errorf("members %v: %s, wanted %s", tt.members, got, tt.want)
		}
	}
}
