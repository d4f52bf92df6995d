package component

import "testing"

func TestCheckReservations(t *testing.T) {
	for _, tt := range []struct {
		field, key, value string
		want              string // empty: accepted
	}{
		{"evictionHard", "memory.available", "100Mi", ""},
		{"evictionHard", "memory.available", "10%", ""},
		{"evictionHard", "nodefs.inodesFree", "0%", ""},
		{"evictionHard", "pid.available", "12.5%", ""},
		{"evictionHard", "memory.available", "0", `"0" is neither`},
		{"evictionHard", "memory.available", "-1Gi", `"-1Gi" is neither`},
		{"evictionHard", "memory.available", "120%", `"120%" is neither`},
		{"evictionHard", "memory.free", "100Mi", `evictionHard: no signal "memory.free": want one of allocatableMemory.available,`},
		{"evictionSoft", "memory.available", "300Mi", "evictionSoft: memory.available needs an evictionSoftGracePeriod"},
		{"evictionSoft", "memory.available", "0%", ""},
		{"evictionSoftGracePeriod", "memory.available", "1m30s", ""},
		{"evictionSoftGracePeriod", "memory.available", "90", `"90" is not a duration`},
		{"evictionMinimumReclaim", "nodefs.available", "0", ""},
		{"evictionMinimumReclaim", "nodefs.available", "0%", `"0%" is neither`},
		{"kubeReserved", "cpu", "500m", ""},
		{"kubeReserved", "pid", "1000", ""},
		{"kubeReserved", "cpu", "half", `kubeReserved: cpu: "half" is not a quantity`},
		{"systemReserved", "memory", "-1", "systemReserved: memory: -1 is negative"},
		{"systemReserved", "gpu", "1", `systemReserved: no resource "gpu": want one of cpu, ephemeral-storage, memory, pid`},
	} {
		t.Run(tt.field+" "+tt.key+"="+tt.value, func(t *testing.T) {
			_, _, err := overlayKubelet(nil, map[string]any{tt.field: map[string]any{tt.key: tt.value}})
			wantError(t, err, tt.want)
		})
	}
}
