package component

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

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

// TestCheckPlacement: a policy without the settings that it needs is an error of the plan, since a
// rehearsal ends before the kubelet looks at it.
func TestCheckPlacement(t *testing.T) {
	reserved := func(memory string) []any {
		return []any{map[string]any{"numaNode": 0, "limits": map[string]any{"memory": memory}}}
	}
	for _, tt := range []struct {
		name   string
		config map[string]any
		want   string // empty: accepted
	}{
		{"static", map[string]any{"cpuManagerPolicy": "static"}, ""},
		{"static with a processor by name", map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}, ""},
		{"static without a processor for the machine", map[string]any{"cpuManagerPolicy": "static",
			"kubeReserved": map[string]any{"cpu": "0"}, "systemReserved": map[string]any{"cpu": "0"}}, "needs a processor that no pod gets"},
		{"memory", map[string]any{"memoryManagerPolicy": "Static", "reservedMemory": reserved("500Mi")}, ""},
		{"memory without a reservation", map[string]any{"memoryManagerPolicy": "Static"},
			"needs reservedMemory of 500Mi in all, as much as the kubelet reserves (kubeReserved 250Mi, systemReserved 150Mi, evictionHard of memory.available 100Mi), and it is 0"},
		{"memory with another eviction", map[string]any{"memoryManagerPolicy": "Static", "reservedMemory": reserved("500Mi"),
			"evictionHard": map[string]any{"memory.available": "200Mi"}}, "reservedMemory of 600Mi"},
		{"memory with an eviction by percentage, which only the machine knows", map[string]any{"memoryManagerPolicy": "Static", "reservedMemory": reserved("1Gi"),
			"evictionHard": map[string]any{"memory.available": "10%"}}, ""},
	} {
		wantError(t, WorkerSpec{Kubelet: KubeletSpec{Config: tt.config}}.Check().Err(), tt.want)
	}
}

// TestCheckCapacity: a reservation that the machine is too small for is found before the kubelet is
// stopped.
func TestCheckCapacity(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config string
		cpus   string
		want   string // empty: accepted
	}{
		{"little", "kubeReserved: {cpu: 500m, memory: 1Gi}", "0-1", ""},
		{"memory", "kubeReserved: {memory: 1Gi}\nsystemReserved: {memory: 1Gi}", "0-1",
			"the kubelet would keep 2148Mi of memory from pods (kubeReserved 1Gi, systemReserved 1Gi, evictionHard of memory.available 100Mi), and the machine has 2000000Ki"},
		{"memory without eviction", "kubeReserved: {memory: 1900Mi}\nevictionHard: {pid.available: 5%}", "0-1", ""},
		{"memory by percentage", "kubeReserved: {memory: 1900Mi}\nevictionHard: {memory.available: 10%}", "0-1", "evictionHard of memory.available 200000Ki"},
		{"processors", "kubeReserved: {cpu: 1500m}\nsystemReserved: {cpu: 501m}", "0-1", "the kubelet would keep 2001m of cpu from pods (kubeReserved 1500m, systemReserved 501m), and the machine has 2"},
		{"all processors", "kubeReserved: {cpu: 2500m}", "0,2-3\n", ""},
		{"an unknown number of processors", "kubeReserved: {cpu: 64}", "", ""},
	} {
		found := Found{Files: map[string][]byte{memInfo: []byte("MemTotal:        2000000 kB\nMemFree: 1 kB\n"), onlineCPUs: []byte(tt.cpus)}}
		_, _, err := found.JudgeNode(desired.State{Files: []desired.File{{Path: KubeletConfigPath, Content: []byte(tt.config)}}})
		t.Run(tt.name, func(t *testing.T) { wantError(t, err, tt.want) })
	}
}
