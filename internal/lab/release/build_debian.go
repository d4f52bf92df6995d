package release

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// unpackDebian copies files of Debian packages to dir. Each package is fetched once.
func (b *builder) unpackDebian(ctx context.Context, files []debianFile, dir string) error {
	root, err := os.MkdirTemp(b.work, "debian-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	for _, f := range files {
		unpacked := filepath.Join(root, f.pkg)
		if _, err := os.Stat(unpacked); err != nil {
			if err := b.extractPackage(ctx, f.pkg, unpacked); err != nil {
				return err
			}
		}
		member, err := findMember(unpacked, f.member)
		if err != nil {
			return fmt.Errorf("package %s: %w", f.pkg, err)
		}
		if err := copyFile(filepath.Join(dir, f.name), member, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// staticLibrary unpacks lib's Debian package to root and returns the path of the library.
func (b *builder) staticLibrary(ctx context.Context, lib staticLibrary, root string) (string, error) {
	if err := b.extractPackage(ctx, lib.debian, root); err != nil {
		return "", err
	}
	return findOne(root, "usr/lib/*/lib"+lib.name+".a")
}

// extractPackage downloads a Debian package with the host's apt, which checks its signature, and
// unpacks it to root; nothing is installed.
func (b *builder) extractPackage(ctx context.Context, pkg, root string) error {
	dir, err := os.MkdirTemp(b.work, "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// apt would download as its own user, which may not write to the directory.
	cmd := b.command(ctx, dir, "apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", pkg)
	stop := b.progress.Quiet("downloading Debian package " + pkg)
	err = run(cmd, nil)
	stop()
	if err != nil {
		return fmt.Errorf("downloading Debian package %s (is `apt-get update` due?): %w", pkg, err)
	}
	deb, err := findOne(dir, "*.deb")
	if err != nil {
		return err
	}
	if err := run(b.command(ctx, dir, "dpkg-deb", "-x", deb, root), nil); err != nil {
		return fmt.Errorf("unpacking Debian package %s: %w", pkg, err)
	}
	return nil
}

// findMember returns the only file of an unpacked package that matches pattern, there or below usr:
// since Debian 13 packages have in /usr what they had in /.
func findMember(root, pattern string) (string, error) {
	if found, err := findOne(filepath.Join(root, "usr"), pattern); err == nil {
		return found, nil
	}
	return findOne(root, pattern)
}

// findOne returns the only file of root that matches pattern.
func findOne(root, pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d files match %s, want 1", len(found), pattern)
	}
	return found[0], nil
}

func copyFile(to, from string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
