package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/ingest/spool"
)

// Free space in the state directory.
const (
	littleSpace = 256 << 20 // a busy run writes some MiB a minute
	noSpace     = 16 << 20
)

// secret reports whether the value of a variable is one.
func secret(name, value string) bool {
	for _, end := range []string{"_TOKEN", "_PASSWORD", "_SECRET", "_SECRET_KEY", "_SIGNING_KEY", "_KEYS_WRAP"} {
		if strings.HasSuffix(name, end) {
			return value != ""
		}
	}
	return name == "CBCAST_NATS_URL" && strings.Contains(value, "@")
}

// config names what is set, never its value.
func (d *doctor) config() {
	vars := environMap(d.a.environ)
	merged := map[string]string{}
	var files []string
	for _, name := range configFiles(vars) {
		_, err := os.Stat(name)
		if err == nil {
			files = append(files, name)
			err = readEnvFile(name, merged)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.fail("configuration", "correct the file, or remove it", "%v", err)
		}
		for _, k := range slices.Sorted(maps.Keys(merged)) {
			if secret(k, merged[k]) && open(name) {
				d.warn("configuration", "chmod go-rwx "+name, "%s holds a secret, and others can read it", name)
				break
			}
		}
	}
	for k, v := range vars {
		if strings.HasPrefix(k, envPrefix) {
			merged[k] = v
		}
	}
	if no := unknownVars(slices.Collect(maps.Keys(merged))); len(no) > 0 {
		for i, name := range no {
			if m := meant(name); m != "" {
				no[i] += " (but " + m + ")"
			}
		}
		d.warn("configuration", "correct the names, or remove them", "there is no variable %s", strings.Join(no, ", "))
	}
	text := "defaults only"
	if len(merged) > 0 {
		text = strings.Join(slices.Sorted(maps.Keys(merged)), " ")
	}
	if len(files) > 0 {
		text += "; read " + strings.Join(files, ", ")
	}
	d.ok("configuration", "%s", text)
	edge := d.a.cfg.Edge
	if err := edge.Validate(); err != nil {
		d.fail("configuration", "correct it; until then no run is recorded", "%v", err)
	}
}

// open reports whether others may read a file.
func open(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode()&0o044 != 0
}

// stateDir looks at the state directory without making it.
func (d *doctor) stateDir() {
	const name = "state directory"
	dir := d.a.cfg.StateDir
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		parent := dir
		for errors.Is(err, fs.ErrNotExist) && filepath.Dir(parent) != parent {
			parent = filepath.Dir(parent)
			_, err = os.Stat(parent)
		}
		if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
			d.fail(name, "set CBCAST_STATE_DIR to a folder that you may make; agents run without it, and nothing is recorded",
				"%s is not there and cannot be made in %s: %v", dir, parent, err)
			return
		}
		d.ok(name, "%s is not there yet; the first command makes it%s", dir, d.space(parent))
		return
	}
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s is no directory", dir)
	}
	if err == nil {
		err = private(dir)
	}
	if err == nil {
		err = writable(dir)
	}
	if err != nil {
		d.fail(name, "without it agents run and nothing is recorded", "%v", err)
		return
	}
	d.ok(name, "%s, mode %04o%s", dir, st.Mode().Perm(), d.space(dir))
}

// writable tries to write a file, and removes it.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("ok\n")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// space says how much of it is free, and complains where that is little.
func (d *doctor) space(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return ""
	}
	free := uint64(st.Bavail) * uint64(st.Bsize) //nolint:unconvert,gosec // types differ between systems
	const do = "make room, or set CBCAST_STATE_DIR; agents run on a full disk, and what does not fit is counted as a gap"
	switch {
	case free < noSpace:
		d.fail("disk", do, "%s free for the spool", size(free))
	case free < littleSpace:
		d.warn("disk", do, "%s free for the spool", size(free))
	}
	return ", " + size(free) + " free"
}

func size(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}

// spool says what waits for the bus.
func (d *doctor) spool() {
	infos, err := spool.List(d.a.spoolRoot())
	if err != nil {
		d.fail("spool", "", "%v", err)
		return
	}
	var live, left, bad int
	var bytes, total uint64
	for _, i := range infos {
		total += uint64(max(i.Bytes, 0))
		switch {
		case i.Live:
			live++
		case i.Err != nil:
			bad++
		case !i.Shipped():
			left++
			bytes += uint64(max(i.Bytes, 0))
		}
	}
	if bad > 0 {
		d.warn("spool", "cbcast flush ships what can be read; cbcast flush --list says what is wrong", "runs that cannot be read whole: %d", bad)
	}
	if left > 0 {
		d.warn("spool", "cbcast flush ships them, and so does the next run that reaches the bus", "runs that wait for the bus: %d, %s", left, size(bytes))
	}
	if uint64(max(d.a.cfg.Edge.SpoolMax, 0)) < total+total/10 {
		d.warn("spool", "cbcast flush, or a larger CBCAST_SPOOL_MAX", "%s of CBCAST_SPOOL_MAX are in use", size(total))
	}
	if last := d.checks[len(d.checks)-1]; last.Name != "spool" {
		d.ok("spool", "%s, nothing waits for the bus; runs that live here: %d", size(total), live)
	}
}

// agents names the agents in PATH. It runs none of them.
func (d *doctor) agents() {
	var found []string
	for _, name := range []string{"claude", "cbc", "codex"} {
		if p, err := child.LookPath(name); err == nil {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		d.warn("agents", "install one, or name it: cbcast doctor -- /path/to/claude …", "no claude, cbc or codex in PATH")
		return
	}
	d.ok("agents", "%s; cbcast doctor -- COMMAND … says what one can do", strings.Join(found, ", "))
}
