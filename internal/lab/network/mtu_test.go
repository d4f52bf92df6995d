package network

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLargePackets checks that 9001 bytes fit within a VPC and 1500 to the internet, and that the
// router reports larger packets.
func TestLargePackets(t *testing.T) {
	l := withPublicAddresses(t)
	for n := range l.cfg.VPCs[0].SecurityGroups {
		l.cfg.VPCs[0].SecurityGroups[n].Ingress = rules("udp", 9, 9, anyCIDR)
	}
	l.apply()
	const headers = 28 // of IPv4 and UDP
	for _, test := range []struct {
		to, addr string
		size     int
		fits     bool
	}{
		{"eni-c", ipC, 9001, true},
		{"eni-c", ipC, 9002, false},
		{operator, l.slice.Operator.String(), 1500, true},
		{operator, l.slice.Operator.String(), 1501, false},
		{operator, l.slice.Operator.String(), 9001, false},
	} {
		received := l.datagrams(test.to, test.addr+":9")
		err := l.sendWhole("eni-a", test.addr+":9", test.size-headers, waitFor(!test.fits))
		switch {
		case test.fits && err != nil:
			t.Errorf("%d bytes to %s: %v", test.size, name(test.to), err)
		case !test.fits && !errors.Is(err, unix.EMSGSIZE):
			t.Errorf("%d bytes to %s: %v, want to be told that this is too large", test.size, name(test.to), err)
		}
		if got := received(waitFor(test.fits)); (got == test.size-headers) != test.fits {
			t.Errorf("%d bytes to %s: received %d", test.size, name(test.to), got)
		}
	}
}

// datagrams returns a function that waits for a datagram and returns its size, 0 if none arrives.
func (l *lab) datagrams(place, addr string) func(time.Duration) int {
	l.t.Helper()
	socket := l.listenUDP(place, addr)
	return func(timeout time.Duration) int {
		defer socket.Close()
		_ = socket.SetReadDeadline(time.Now().Add(timeout)) // the read then fails
		n, _, _ := socket.ReadFrom(make([]byte, 1<<14))
		return n
	}
}

// sendWhole sends a datagram that must not be fragmented. If a router refuses it for its size, the
// kernel reports that on a later call, which ends after a timeout.
func (l *lab) sendWhole(place, addr string, size int, timeout time.Duration) error {
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		})
		return errors.Join(failed, err)
	}}
	var conn net.Conn
	err := l.at(place, func() (err error) {
		conn, err = dialer.DialContext(l.t.Context(), "udp4", addr)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, size)); err != nil {
		return err
	}
	// The router's ICMP message becomes the socket's error.
	_ = conn.SetReadDeadline(time.Now().Add(timeout))
	_, err = conn.Read(make([]byte, 1))
	if errors.Is(err, unix.EMSGSIZE) {
		return err
	}
	return nil
}
