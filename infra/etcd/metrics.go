package etcd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Metrics are figures of a member since it started, from etcd's own histograms. The durations are bounds of their buckets.
type Metrics struct {
	Disk Disk
	// trips are the smoothed round trips of the member's probes, by the member that is probed: 99 of 100 figures were at
	// most this. etcd takes a figure every 30 seconds. It probes by HTTP, beside the messages of Raft, and keeps the
	// figures of members that have been removed.
	trips map[ID]time.Duration
}

// Disk is how fast a member's disk has been, in powers of two of a millisecond.
type Disk struct {
	Syncs  uint64        // writes of the log that were synced
	Sync   time.Duration // 99 of 100 took at most this long
	Commit time.Duration // of commits to the database, 99 of 100 took at most this long
}

// RoundTrip returns an upper bound of the round trips to the farthest of these members, in powers of two of a tenth of a
// millisecond. It is zero if the member has probed none of them.
func (m Metrics) RoundTrip(members []Member) (farthest time.Duration) {
	for _, to := range members {
		farthest = max(farthest, m.trips[to.ID])
	}
	return farthest
}

const (
	// slowSync is etcd's default election timeout, halved: where every hundredth write takes longer,
	// members lose their leader under load. (etcd advises 10 ms, which only dedicated disks keep.)
	slowSync = 512 * time.Millisecond
	// minSyncs is from how many writes on a disk is judged: some minutes of an idle cluster. The
	// writes of a first start, while the machine still installs programs, are a small part of it.
	minSyncs = 2000
)

// SlowSync is the duration from which a disk is slow, for words.
const SlowSync = slowSync

// Slow reports whether the disk is too slow for etcd. It judges all writes since the start of the
// member, so it does not change with a moment's load.
func (d Disk) Slow() bool { return d.Syncs >= minSyncs && d.Sync > slowSync }

// The histograms, and how much of an answer is read.
const (
	syncHistogram   = "etcd_disk_wal_fsync_duration_seconds"
	commitHistogram = "etcd_disk_backend_commit_duration_seconds"
	tripHistogram   = "etcd_network_peer_round_trip_time_seconds"
	maxMetrics      = 8 << 20
)

// Metrics reads the member's metrics. It needs no quorum.
func (c *Client) Metrics(ctx context.Context) (Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	m, err := c.metrics(ctx)
	if err != nil {
		return Metrics{}, fmt.Errorf("asking etcd %s for its metrics: %w", c.endpoint, err)
	}
	return m, nil
}

func (c *Client) metrics(ctx context.Context) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.endpoint+"/metrics", nil)
	if err != nil {
		return Metrics{}, err
	}
	answer, err := c.web.Do(request)
	if err != nil {
		return Metrics{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return Metrics{}, fmt.Errorf("answer %s", answer.Status)
	}
	return metricsOf(ctx, foreign.Reader(answer.Body, maxMetrics, "etcd "+c.endpoint))
}

// metricsOf reads metrics in the text format of Prometheus. The library's parser panics on some texts.
func metricsOf(ctx context.Context, text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	var families map[string]*dto.MetricFamily
	err := parallel.Safely(ctx, "reading etcd's metrics", func() (err error) {
		families, err = parser.TextToMetricFamilies(text)
		return err
	})
	if err != nil {
		return Metrics{}, err
	}
	m := Metrics{trips: map[ID]time.Duration{}}
	for _, metric := range families[syncHistogram].GetMetric() {
		m.Disk.Syncs, m.Disk.Sync = metric.GetHistogram().GetSampleCount(), percentile99(metric.GetHistogram())
	}
	for _, metric := range families[commitHistogram].GetMetric() {
		m.Disk.Commit = percentile99(metric.GetHistogram())
	}
	for _, metric := range families[tripHistogram].GetMetric() {
		for _, label := range metric.GetLabel() {
			if id, err := strconv.ParseUint(label.GetValue(), 16, 64); err == nil && label.GetName() == "To" {
				m.trips[ID(id)] = percentile99(metric.GetHistogram())
			}
		}
	}
	return m, nil
}

// percentile99 returns the bound of the first bucket of a histogram below which 99 of 100 values are. Above the last bound it
// is twice that. It is zero if there are no values.
func percentile99(h *dto.Histogram) time.Duration {
	count, last := h.GetSampleCount(), 0.0
	if count == 0 {
		return 0
	}
	for _, b := range h.GetBucket() {
		bound := b.GetUpperBound()
		if bound > 1e6 { // +Inf
			break
		}
		last = bound
		if b.GetCumulativeCount()*100 >= count*99 {
			return seconds(bound)
		}
	}
	return seconds(2 * last)
}

func seconds(s float64) time.Duration {
	return (time.Duration(s * float64(time.Second))).Round(100 * time.Microsecond)
}
