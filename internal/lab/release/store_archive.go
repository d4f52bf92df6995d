package release

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"time"
)

// writeArchive packs the named programs of dir into a gzipped tar at to, each as inside/name. The
// same programs give the same bytes. The programs are stored, not compressed: the mirror is local,
// and decompression would take CPU time from machines that boot at the same time.
func writeArchive(to, dir, inside string, names []string, released time.Time) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := out.Close(); err == nil {
			err = closeErr
		}
	}()
	zw, err := gzip.NewWriterLevel(out, gzip.NoCompression)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(zw)
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: inside + "/", Mode: 0o755, ModTime: released}); err != nil {
		return err
	}
	for _, name := range names {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: inside + "/" + name, Mode: 0o755, ModTime: released}
		if err := WriteTarFile(tw, header, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return zw.Close()
}

// WriteTarFile writes a file with its header, in which it sets the size.
func WriteTarFile(tw *tar.Writer, header *tar.Header, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := tw.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(tw, in)
	return err
}
