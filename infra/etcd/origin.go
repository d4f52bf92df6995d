package etcd

import (
	"encoding/binary"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Origin says who has written the data of a data directory: the member, and its cluster. The zero
// value means that it is not known.
type Origin struct{ Member, Cluster ID }

// OriginFiles is the pattern, below a data directory, of the files of the write-ahead log. Every one
// of them begins with the origin, within OriginBytes.
const (
	OriginFiles = "member/wal/*.wal"
	OriginBytes = 512
)

// The form of the log is that of etcd's package server/storage/wal: a record begins with the length
// of its encoding, in the lower 56 bits of a word, and ends at a multiple of eight bytes.
const (
	walLengthBits   = 56
	walAlignment    = 8
	walMetadataType = 1 // the type of the record with the origin
)

var errNoOrigin = errors.New("the write-ahead log of etcd does not begin with the ids of a member and a cluster")

// ParseOrigin reads the origin from the beginning of a file of the write-ahead log.
func ParseOrigin(head []byte) (Origin, error) {
	for len(head) >= walAlignment {
		length := binary.LittleEndian.Uint64(head) & (1<<walLengthBits - 1)
		head = head[walAlignment:]
		padded := (length + walAlignment - 1) / walAlignment * walAlignment
		if length == 0 || padded > uint64(len(head)) {
			break
		}
		kind, data := walRecord(head[:length])
		if head = head[padded:]; kind != walMetadataType {
			continue // the first record continues the checksum of the file before
		}
		var m etcdserverpb.Metadata
		if err := proto.Unmarshal(data, &m); err != nil || m.GetNodeID() == 0 || m.GetClusterID() == 0 {
			break
		}
		return Origin{Member: ID(m.GetNodeID()), Cluster: ID(m.GetClusterID())}, nil
	}
	return Origin{}, errNoOrigin
}

// walRecord returns the type and the data of a record: the fields 1 and 3 of etcd's walpb.Record.
func walRecord(b []byte) (kind uint64, data []byte) {
	for len(b) > 0 {
		field, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, nil
		}
		b = b[n:]
		switch {
		case field == 1 && wire == protowire.VarintType:
			kind, n = protowire.ConsumeVarint(b)
		case field == 3 && wire == protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, wire, b)
		}
		if n < 0 {
			return 0, nil
		}
		b = b[n:]
	}
	return kind, data
}
