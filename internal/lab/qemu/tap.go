package qemu

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/nsenter"
)

// An Interface is what a guest needs to know about the interface that it replaces.
type Interface struct {
	MAC string
	MTU int
}

// Connect makes a virtual machine's end of an interface of a network namespace, given by its path:
// every frame that arrives at one leaves by the other. The guest uses the interface's own hardware
// address.
func Connect(namespace, name string) (Interface, error) {
	var found Interface
	err := nsenter.Run(namespace, func() error {
		outer, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		found = Interface{MAC: outer.Attrs().HardwareAddr.String(), MTU: outer.Attrs().MTU}
		if err := removeTap(); err != nil {
			return err
		}
		tap := &netlink.Tuntap{
			LinkAttrs: netlink.LinkAttrs{Name: tapName, MTU: found.MTU},
			Mode:      netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_ONE_QUEUE | netlink.TUNTAP_VNET_HDR,
		}
		if err := netlink.LinkAdd(tap); err != nil {
			return fmt.Errorf("tap device: %w", err)
		}
		for _, f := range tap.Fds {
			_ = f.Close()
		}
		inner, err := netlink.LinkByName(tapName)
		if err != nil {
			return fmt.Errorf("tap device: %w", err)
		}
		if err := netlink.LinkSetMTU(inner, found.MTU); err != nil {
			return fmt.Errorf("tap device: %w", err)
		}
		for _, pair := range [][2]netlink.Link{{outer, inner}, {inner, outer}} {
			if err := redirect(pair[0], pair[1]); err != nil {
				return fmt.Errorf("connect %s with %s: %w", pair[0].Attrs().Name, pair[1].Attrs().Name, err)
			}
			if err := netlink.LinkSetUp(pair[0]); err != nil {
				return fmt.Errorf("interface %s: %w", pair[0].Attrs().Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return Interface{}, fmt.Errorf("network of the virtual machine: %w", err)
	}
	return found, nil
}

// Disconnect undoes Connect. It is no error if nothing is connected, or if the namespace is gone.
func Disconnect(namespace, name string) error {
	err := nsenter.Run(namespace, func() error {
		outer, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.QdiscDel(ingress(outer))
		}
		var notFound netlink.LinkNotFoundError
		if err != nil && !errors.As(err, &notFound) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
			return err
		}
		return removeTap()
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("network of the virtual machine: %w", err)
	}
	return nil
}

func removeTap() error {
	old, err := netlink.LinkByName(tapName)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(old)
	}
	if err != nil {
		return fmt.Errorf("tap device: %w", err)
	}
	return nil
}

func ingress(link netlink.Link) netlink.Qdisc {
	return &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}
}

// redirect sends every frame that arrives at one interface out of the other.
func redirect(from, to netlink.Link) error {
	if err := netlink.QdiscReplace(ingress(from)); err != nil {
		return err
	}
	return netlink.FilterReplace(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: from.Attrs().Index, Parent: netlink.MakeHandle(0xffff, 0), Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Sel:     &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Nkeys: 1, Keys: []netlink.TcU32Key{{}}},
		Actions: []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
	})
}
