package roles

import (
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/loadbalancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

func checkIntervalSetting() setting[lbModel, loadbalancer.LoadBalancer] {
	return newSetting(tf.DurationAttribute(fmt.Sprintf("How often HAProxy asks each API server whether it is ready, `%s` to `%s`. A TLS connection may take as long, and the answer twice as long. After two checks without an answer the API server gets no "+
		"connections, and those that it has are cut. Make it longer where machines are so slow that healthy API servers miss checks. A stopping API server serves on for three intervals. Changed in place: "+
		"HAProxy is reloaded first, and then one API server after the other is restarted, which may break connections when the interval gets longer. Default: `%s`.",
		tf.ShortDuration(component.MinCheckInterval), tf.ShortDuration(component.MaxCheckInterval), tf.ShortDuration(component.DefaultCheckInterval))),
		duration, func(m *lbModel, s *loadbalancer.LoadBalancer) (*timetypes.GoDuration, *time.Duration) {
			return &m.CheckInterval, &s.Spec.CheckInterval
		})
}

// notice is the time within which HAProxy notices that an API server is not ready, in seconds. Null stands for the
// control plane's default.
func (m *lbModel) notice() types.Int64 {
	if m.CheckInterval.IsUnknown() {
		return types.Int64Unknown()
	}
	notice := component.LoadBalancerSpec{CheckInterval: tf.Duration(m.CheckInterval, 0)}.Notice()
	if notice == component.DefaultShutdownDelay {
		return types.Int64Null()
	}
	return types.Int64Value(int64(notice.Seconds()))
}
