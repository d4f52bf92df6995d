package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layerFormat is raised when the same image definition yields another layer.
const layerFormat = 2

// The users of upstream's images.
const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
	group  = "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n"
)

// newLayer makes the only layer of an image. The same programs give the same bytes. It is not
// compressed, for the reason that writeArchive gives.
func newLayer(programs string, image image, applets []string) (v1.Layer, error) {
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	files := map[string]string{image.path: image.program()}
	for name, at := range image.libraries {
		files[at] = name
	}
	err := errors.Join(
		writeDir(tw, "etc/", 0o755),
		writeText(tw, "etc/passwd", passwd),
		writeText(tw, "etc/group", group),
		writeDir(tw, "root/", 0o700),
		writeDir(tw, "tmp/", 0o1777),
	)
	for _, dir := range directories(slices.Collect(maps.Keys(files))) {
		if err == nil {
			err = writeDir(tw, dir, 0o755)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(files)) {
		if err == nil {
			err = writeProgram(tw, filepath.Join(programs, files[at]), at, at == image.path && image.bindsLowPorts)
		}
	}
	for _, applet := range applets {
		if err == nil && applet != path.Base(image.path) {
			err = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "/" + image.path, Mode: 0o777})
		}
	}
	if err = errors.Join(err, tw.Close()); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.NoCompression), tarball.WithMediaType(types.OCILayer))
}

// directories returns every directory above the files, parents first.
func directories(files []string) []string {
	seen := map[string]bool{}
	for _, file := range files {
		for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
			seen[dir+"/"] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func writeDir(tw *tar.Writer, name string, mode int64) error {
	return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode})
}

func writeText(tw *tar.Writer, name, text string) error {
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		return err
	}
	_, err := io.WriteString(tw, text)
	return err
}

func writeProgram(tw *tar.Writer, program, at string, bindsLowPorts bool) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: at, Mode: 0o755}
	if bindsLowPorts {
		header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": string(netBindService())}
	}
	return WriteTarFile(tw, header, program)
}

// netBindService is the file capability cap_net_bind_service=ep as the kernel stores it: struct
// vfs_cap_data, revision 2 (capabilities(7)).
func netBindService() []byte {
	const (
		revision2         = 0x02000000
		effective         = 0x1
		capNetBindService = 10
	)
	data := binary.LittleEndian.AppendUint32(nil, revision2|effective)
	data = binary.LittleEndian.AppendUint32(data, 1<<capNetBindService)
	return append(data, make([]byte, 12)...)
}
