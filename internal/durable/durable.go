// Package durable changes files so that the change holds after a power loss.
//
// Every function returns after the file's bytes and the directory entry that
// names it were given to the disk (fsync of both). What that is worth is up to
// the disk: a write cache that lies about a flush is not seen from here.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces the file at path by one with these bytes. After it returns
// nil, path holds exactly data, also after a power loss. After an error or a
// crash at any moment, path holds either all of what it held before or all of
// data, never a mixture; a file named as path with ".tmp" and digits behind may
// stay in its directory and can be removed. On an error that comes from the
// last step (fsync of the directory) path already holds data, but a power loss
// may bring the old file back.
//
// perm is exact: the umask does not apply. Two concurrent calls for one path do
// not mix; either may win.
func WriteFile(path string, data []byte, perm fs.FileMode) (err error) {
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir+"."), name+".tmp*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err = f.Chmod(perm); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if _, err = f.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	// The bytes must be on the disk before the name points to them: some file
	// systems order it the other way round and leave an empty file.
	if err = f.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err = f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	// From here on the new file is in place: a failed fsync must not remove it.
	if serr := SyncDir(filepath.Dir(path)); serr != nil {
		return serr
	}
	return nil
}

// Rename moves oldpath to newpath, which is replaced if it exists. After it
// returns nil, the move holds after a power loss. A crash before leaves the file
// under one of the two names; when they are in different directories it may be
// under both. The bytes of the file are not synced: do that before.
func Rename(oldpath, newpath string) error {
	if err := os.Rename(oldpath, newpath); err != nil {
		return fmt.Errorf("rename: %w", err)
	}
	from, to := filepath.Dir(oldpath), filepath.Dir(newpath)
	// The new name first: a crash between the two may show the file twice, but
	// never loses it.
	if err := SyncDir(to); err != nil {
		return err
	}
	if from == to {
		return nil
	}
	return SyncDir(from)
}

// Remove removes the file or empty directory at path. After it returns nil, it
// stays removed after a power loss. That path does not exist is no error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove: %w", err)
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the entries of the directory at path (files created, renamed
// and removed in it) hold after a power loss. It says nothing about the bytes
// of those files.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}
