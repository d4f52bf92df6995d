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
	return newSetting(tf.DurationAttribute(fmt.Sprintf("How often HAProxy asks each API server whether it is ready, `%s` to `%s`. After three failed checks the API server gets no connections, and its present connections are cut. "+
		"A change reloads HAProxy and restarts the API servers one at a time. Default: `%s`.",
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
