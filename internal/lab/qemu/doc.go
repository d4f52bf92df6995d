// Package qemu is one QEMU virtual machine: its command line, the commands to it while it runs
// (QMP), its network interface, and what runs its processors.
//
// A virtual machine is like a Nitro instance where the guest can tell: each disk has its volume's
// id as its serial number, the network interface is in slot 5 of the PCI bus, and the firmware says
// "Amazon EC2". It differs from a Nitro instance in three things. Disks are virtio's and not NVMe,
// since QEMU cannot give an NVMe disk that is in use a bigger size. The network adapter is virtio's
// and not ENA. And QEMU loads the kernel, without a boot loader.
//
// This package knows nothing of images, the EC2 API and other machines. Linux on amd64 only; needs
// root.
package qemu
