package ingest

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// niceness is how far the threads of background yield: they get a third of what
// an ordinary one gets where all want the processor, and all where nobody does.
const niceness = 5

// short is how long f may run before it is given a thread more.
const short = 20 * time.Millisecond

var spread sync.Mutex // guards the change of GOMAXPROCS

// background runs f on a thread that yields to others of this process and of the
// machine: to the copy between child and parent, which must not wait for the
// recording, and to the child. A child that writes as fast as it can gets two to
// three times further with it on two processors.
//
// The scheduler of Go does not see that such a thread waits for a processor, and
// would let the copy wait for it; so it may use one thread more meanwhile.
func background(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		// Where the system refuses, f runs like everything else.
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), niceness)
		f()
	}()
	// The change stops the whole program for a moment, which a short run does not
	// pay: neither its parent nor its child has anything of it.
	t := time.NewTimer(short)
	defer t.Stop()
	select {
	case <-done:
		return
	case <-t.C:
	}
	procs(1)
	defer procs(-1)
	<-done
}

func procs(n int) {
	spread.Lock()
	defer spread.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}
