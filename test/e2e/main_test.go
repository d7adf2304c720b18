// Package e2e drives the real agent programs, bare and wrapped by cbcast, with a
// scripted model. All of it (agents, model, NATS server, relay, hosts) runs in a
// network namespace that has loopback and nothing else, with an empty
// environment, a scratch home and a key that is none.
//
// The programs are too big to keep here. `make e2e` fetches them and sets
// CBCAST_E2E_CLIS to where they are; without it these tests are skipped.
package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	envCLIs    = "CBCAST_E2E_CLIS"    // the directory that test/e2e/fetch filled
	envProgram = "CBCAST_E2E_PROGRAM" // the built cbcast; set for the inner process
)

func TestMain(m *testing.M) {
	if os.Getenv(envCLIs) == "" {
		os.Exit(m.Run()) // every test skips itself and says how to run it
	}
	if os.Getenv(envProgram) == "" {
		os.Exit(outer())
	}
	if err := onlyLoopback(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// outer builds cbcast and runs this test binary again inside a new network
// namespace. It never runs an agent itself.
func outer() int {
	dir, err := os.MkdirTemp("", "cbcast-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "cbcast")
	build := exec.Command("go", "build", "-o", program, "../../cmd/cbcast")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: %v: %v\n%s", build, err, out)
		return 1
	}
	runtime.LockOSThread() // Pdeathsig follows the thread that forked
	inner := exec.Command("/proc/self/exe", os.Args[1:]...)
	inner.Env = append(os.Environ(), envProgram+"="+program)
	inner.Stdin, inner.Stdout, inner.Stderr = os.Stdin, os.Stdout, os.Stderr
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		inner.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		inner.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		inner.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err = inner.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	default:
		fmt.Fprintln(os.Stderr, "e2e: no network namespace, and the agents do not run without one:", err)
		return 1
	}
}

// onlyLoopback brings the loopback interface up and makes sure that there is no
// other.
func onlyLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return fmt.Errorf("interface %s is up; the agents run with loopback only", i.Name)
		}
	}
	return nil
}
