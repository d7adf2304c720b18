package child_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
)

// The test binary is also the bad child: childEnv names what it does instead of
// testing.
const childEnv = "CBCAST_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		environ = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, childEnv+"=") })
		os.Unsetenv(childEnv) // a helper that it starts does what it is told
		f, ok := children[name]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such child:", name)
			os.Exit(99)
		}
		os.Exit(f(os.Args[1:]))
	}
	// A race-enabled child sleeps for a second before its exit otherwise.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	os.Exit(m.Run())
}

// environ is a child's environment without childEnv, doubled names kept.
var environ []string

// children are the scripted children. Each returns its exit code.
var children = map[string]func(args []string) int{
	"wrap":      wrap,
	"cat":       func([]string) int { io.Copy(os.Stdout, os.Stdin); return 0 },
	"exit":      func(a []string) int { return atoi(a[0]) },
	"die":       func(a []string) int { return child.Reraise(syscall.Signal(atoi(a[0]))) },
	"burst":     burst,
	"lines":     func(a []string) int { writeLines(atoi(a[0])); return 0 },
	"write":     func(a []string) int { os.Stdout.Write(bytes.Repeat([]byte{'x'}, atoi(a[0]))); return idle() },
	"both":      both,
	"firstout":  firstOut,
	"idle":      func([]string) int { fmt.Println("ready"); return idle() },
	"signals":   signals,
	"half":      half,
	"helpers":   helpers,
	"helper":    func([]string) int { os.Stderr.Close(); return idle() },
	"tree":      tree,
	"zombies":   zombies,
	"closein":   func([]string) int { os.Stdin.Close(); fmt.Println("ready"); return idle() },
	"closeout":  closeOut,
	"answer":    answer,
	"exit-full": exitFull,
	"termexit":  termExit,

	"late-cat": lateCat,
	"exec":     execOther,
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// idle lasts until a signal, far longer than any test.
func idle() int { time.Sleep(time.Hour); return 98 }

// self starts the test binary as another child.
func self(name string, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	c := exec.Command(exe, args...)
	c.Env = append(os.Environ(), childEnv+"="+name)
	return c
}

// wrap is a small cbcast run: args[0] is a file for the result, the rest the
// name and arguments of the child to wrap.
func wrap(args []string) int {
	exe, _ := os.Executable()
	p, err := child.Start(child.Config{
		Path: exe, Args: append([]string{"child"}, args[2:]...),
		Env:   append(slices.Clone(environ), childEnv+"="+args[1]),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Adopt: true,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 97
	}
	got := make(chan map[child.Stream][]byte, 1)
	go func() { got <- readTap(p.Tap()) }()
	w := wrapped{Result: p.Wait(), Tap: <-got}
	b, _ := json.Marshal(w)
	if err := os.WriteFile(args[0], b, 0o600); err != nil {
		return 96
	}
	p.Close()
	if w.Result.Signal != 0 {
		return child.Reraise(w.Result.Signal)
	}
	return w.Result.Code
}

// wrapped is what wrap leaves in its result file.
type wrapped struct {
	Result child.Result
	Tap    map[child.Stream][]byte
}

func burst([]string) int {
	var b bytes.Buffer
	for i := range 300 {
		fmt.Fprintf(&b, `{"type":"assistant","uuid":"u-%03d","text":"%s"}`+"\n", i, strings.Repeat("x", 150))
	}
	os.Stdout.Write(b.Bytes())
	return 0
}

func writeLines(n int) {
	for i := range n {
		fmt.Printf("{\"type\":\"assistant\",\"n\":%d}\n", i)
	}
}

// both writes to stdout and stderr in turns.
func both(a []string) int {
	for i := range atoi(a[0]) {
		fmt.Fprintf(os.Stdout, "out %d\n", i)
		fmt.Fprintf(os.Stderr, "err %d\n", i)
	}
	return 0
}

// firstOut writes 256 KiB before it reads its stdin (a prompt of 128 KiB).
func firstOut([]string) int {
	line := strings.Repeat("x", 1023) + "\n"
	for range 256 {
		os.Stdout.WriteString(line)
	}
	n, _ := io.Copy(io.Discard, os.Stdin)
	fmt.Printf("{\"type\":\"result\",\"read\":%d}\n", n)
	return 0
}

// signals prints each signal it gets, until it got all of args.
func signals(args []string) int {
	c := make(chan os.Signal, 100)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	fmt.Println("ready")
	for s := range c {
		fmt.Println(int(s.(syscall.Signal)))
		if int(s.(syscall.Signal)) == atoi(args[0]) {
			return 0
		}
	}
	return 0
}

// half writes half a line, and the rest once it has read a line.
func half([]string) int {
	in := bufio.NewReader(os.Stdin)
	os.Stdout.WriteString(`{"type":"assi`)
	in.ReadString('\n')
	os.Stdout.WriteString("stant\"}\n")
	return 0
}

// helpers starts args[0] helpers in its group (with "out" as args[1] they keep
// its stdout open), prints their pids and exits.
func helpers(args []string) int {
	if slices.Contains(args, "pid") {
		fmt.Println(os.Getpid())
	}
	for range atoi(args[0]) {
		c := self("helper")
		if slices.Contains(args, "out") {
			c.Stdout = os.Stdout
		}
		if err := c.Start(); err != nil {
			return 95
		}
		fmt.Println(c.Process.Pid)
	}
	return 0
}

// tree starts a helper in a session of its own, which has started one too.
// Nothing of the two is in the child's group.
func tree(args []string) int {
	next := self("idle")
	if args[0] != "0" {
		next = self("tree", strconv.Itoa(atoi(args[0])-1))
	}
	next.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r, w, _ := os.Pipe()
	next.Stdout = w
	if err := next.Start(); err != nil {
		return 95
	}
	w.Close()
	in := bufio.NewReader(r)
	for { // its descendants' pids, until the last one is ready
		line, err := in.ReadString('\n')
		if err != nil || line == "ready\n" {
			break
		}
		fmt.Print(line)
	}
	fmt.Println(next.Process.Pid)
	if args[0] == "0" || len(args) > 1 {
		fmt.Println("ready")
	}
	if len(args) > 1 && args[1] == "exit" {
		return 0
	}
	os.Stdout.Close()
	return idle()
}

// zombies starts n processes that end as orphans while it lives on, and tells
// how many zombies with its group there are when told to look.
func zombies(args []string) int {
	r, w, _ := os.Pipe()
	for range atoi(args[0]) {
		// The shell is gone before its background job, which is an orphan then.
		c := exec.Command("sh", "-c", "(read x <&3; exec true) & exit 0")
		c.ExtraFiles = []*os.File{r, w}
		if err := c.Run(); err != nil {
			return 95
		}
	}
	r.Close()
	fmt.Println("ready")
	w.WriteString(strings.Repeat("\n", atoi(args[0])))
	w.Close()
	io.Copy(io.Discard, os.Stdin)
	return 7
}

func closeOut([]string) int {
	fmt.Println("last")
	os.Stdout.Close()
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// answer answers control requests and echoes every other line.
func answer([]string) int {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var f struct {
			Type string `json:"type"`
			ID   string `json:"request_id"`
		}
		if json.Unmarshal(in.Bytes(), &f) == nil && f.Type == "control_request" {
			fmt.Printf(`{"type":"control_response","response":{"subtype":"success","request_id":%q}}`+"\n", f.ID)
			continue
		}
		fmt.Println(in.Text())
	}
	return 0
}

// exitFull leaves a full pipe behind.
func exitFull(a []string) int {
	for range atoi(a[0]) {
		os.Stdout.WriteString(strings.Repeat("y", 1023) + "\n")
	}
	return 0
}

// termExit writes without end, and exits with 5 on SIGTERM.
func termExit([]string) int {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	go func() {
		for i := 0; ; i++ {
			fmt.Fprintf(os.Stdout, "line %d %s\n", i, strings.Repeat("z", 100))
		}
	}()
	<-c
	os.Exit(5)
	return 0
}

// lateCat does not read until SIGUSR1.
func lateCat([]string) int {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	fmt.Println("ready")
	<-c
	io.Copy(os.Stdout, os.Stdin)
	return 0
}

// execOther replaces itself by a shell that prints its arguments and environment.
func execOther(a []string) int {
	err := child.Exec("/bin/sh", append([]string{"sh", "-c", `printf '%s|' "$@"; printf 'B=%s|A=%s\n' "$B" "$A"`, "sh"}, a...), []string{"B=2", "A=1"})
	fmt.Println(err)
	return 94
}
