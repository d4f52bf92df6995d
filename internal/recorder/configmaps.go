package recorder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// connections is the number of connections of ConfigMaps, so that each API server behind a load
// balancer serves some.
const connections = 6

// ConfigMaps are registers in a cluster: the ConfigMaps NAME-0, NAME-1 and so on of the namespace
// default. Reads are answered by a quorum of etcd, and writes are unconditional. Nothing is asked
// twice: a write whose repetition is late would undo the writes after it.
type ConfigMaps struct {
	name    string
	clients []rest.Interface
	turn    atomic.Uint64
}

// NewConfigMaps creates the registers, all of them 0.
func NewConfigMaps(ctx context.Context, config *rest.Config, name string, registers int) (*ConfigMaps, error) {
	m := &ConfigMaps{name: name}
	for range connections {
		own := rest.CopyConfig(config)
		own.QPS = -1
		own.Dial = (&net.Dialer{}).DialContext // with it clients do not share a connection
		client, err := kubernetes.NewForConfig(own)
		if err != nil {
			return nil, err
		}
		m.clients = append(m.clients, client.CoreV1().RESTClient())
	}
	for key := range registers {
		if err := m.clients[0].Post().Namespace("default").Resource("configmaps").Body(m.register(key, 0)).Do(ctx).Error(); err != nil {
			return nil, fmt.Errorf("creating register %d: %w", key, err)
		}
	}
	return m, nil
}

// field is where the value of a register is.
const field = "value"

func (m *ConfigMaps) object(key int) string { return fmt.Sprintf("%s-%d", m.name, key) }

func (m *ConfigMaps) register(key, value int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: m.object(key)}, Data: map[string]string{field: strconv.Itoa(value)}}
}

// client returns the clients in turn.
func (m *ConfigMaps) client() rest.Interface { return m.clients[m.turn.Add(1)%uint64(len(m.clients))] }

// Read implements Registers.
func (m *ConfigMaps) Read(ctx context.Context, key int) (int, error) {
	var got corev1.ConfigMap
	err := m.client().Get().MaxRetries(0).Namespace("default").Resource("configmaps").Name(m.object(key)).Do(ctx).Into(&got)
	if err != nil {
		return 0, reason(err)
	}
	return strconv.Atoi(got.Data[field])
}

// Write implements Registers.
func (m *ConfigMaps) Write(ctx context.Context, key, value int) error {
	return reason(m.client().Put().MaxRetries(0).Namespace("default").Resource("configmaps").Name(m.object(key)).Body(m.register(key, value)).Do(ctx).Error())
}

// reason returns an error without the URL, so that the same one of two registers reads the same.
func reason(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s: %w", failed.Op, failed.Err)
	}
	return err
}
