package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// filePlace appends heads to a file, one a line.
type filePlace string

func (f filePlace) String() string { return string(f) }

func (f filePlace) put(_ context.Context, head []byte) (err error) {
	path := string(f)
	_, serr := os.Stat(path)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("copy of a head: %w", err)
	}
	defer func() {
		if cerr := file.Close(); err == nil {
			err = cerr
		}
	}()
	// The command line may state something while the service seals.
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("copy of a head: %w", err)
	}
	end, err := wholeLines(file)
	if err != nil {
		return fmt.Errorf("copy of a head: %w", err)
	}
	if _, err := file.WriteAt(append(bytes.TrimRight(head, "\n"), '\n'), end); err != nil {
		return fmt.Errorf("copy of a head: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("copy of a head: %w", err)
	}
	if serr != nil {
		return durable.SyncDir(filepath.Dir(path))
	}
	return nil
}

// wholeLines is where the last whole line of a file ends; what a crash left behind
// it is cut off.
func wholeLines(f *os.File) (int64, error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 4096)
	for at := end; at > 0; {
		n := min(int64(len(buf)), at)
		if _, err := f.ReadAt(buf[:n], at-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			whole := at - n + int64(i) + 1
			if whole < end {
				err = f.Truncate(whole)
			}
			return whole, err
		}
		at -= n
	}
	if end > 0 {
		err = f.Truncate(0)
	}
	return 0, err
}

// hookPlace posts heads to a URL.
type hookPlace struct {
	url    string
	token  string // "" is none
	client *http.Client
}

func newHookPlace(address, token string) (*hookPlace, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, errors.New("the second destination of heads is no URL")
	}
	return &hookPlace{url: address, token: token, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// String leaves out everything of the URL that may be a secret.
func (h *hookPlace) String() string {
	u, err := url.Parse(h.url)
	if err != nil {
		return "webhook"
	}
	return u.Scheme + "://" + u.Host
}

func (h *hookPlace) put(ctx context.Context, head []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(head))
	if err != nil {
		return errors.New("copy of a head: the URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) { // its text has the URL
			err = u.Err
		}
		return fmt.Errorf("copy of a head to %s: %w", h, err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("copy of a head to %s: status %d", h, resp.StatusCode)
	}
	return nil
}

// isHook reports whether a destination is a URL to post to.
func isHook(dest string) bool {
	return strings.HasPrefix(dest, "https://") || strings.HasPrefix(dest, "http://")
}

// storePlace keeps each head as an object of its own, which is never replaced.
type storePlace struct {
	st segment.Store
	at string
}

func (p storePlace) String() string { return p.at }

func (p storePlace) put(ctx context.Context, head []byte) error {
	h, err := segment.ParseHead(head)
	if err != nil {
		return fmt.Errorf("copy of a head: %w", err)
	}
	key := headCopyKey(h)
	err = p.st.Create(ctx, key, io.NewSectionReader(bytes.NewReader(head), 0, int64(len(head))))
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	have, err := readAll(ctx, p.st, key)
	if err != nil {
		return err
	}
	if !bytes.Equal(bytes.TrimSpace(have), bytes.TrimSpace(head)) {
		return fmt.Errorf("copy of a head: %s has another head %d of tenant %q: somebody else writes there, or the chain was replaced",
			p.at, h.Number, h.Tenant)
	}
	return nil
}

const headCopies = "heads/"

func headCopyKey(h *segment.Head) string {
	return fmt.Sprintf("%s%s/%012d.json", headCopies, subject.Token(h.Tenant), h.Number)
}

func readAll(ctx context.Context, st segment.Store, key string) ([]byte, error) {
	o, err := st.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
}

// headPlace is the second place for heads, nil without.
func (c *Config) headPlace() (headPlace, error) {
	token, err := secret("HEADS_TOKEN", c.HeadsToken, c.HeadsTokenFile)
	switch {
	case err != nil || c.Heads == "":
		return nil, err
	case isHook(c.Heads):
		return newHookPlace(c.Heads, token)
	case strings.HasPrefix(c.Heads, "s3://"):
		st, err := c.openStore(c.Heads)
		if err != nil {
			return nil, fmt.Errorf("CBCAST_ARCHIVE_HEADS: %w", err)
		}
		return storePlace{st, c.Heads}, nil
	case strings.Contains(c.Heads, "://"):
		return nil, errors.New("CBCAST_ARCHIVE_HEADS is a file, s3://bucket/prefix or a URL of http or https")
	}
	return filePlace(c.Heads), nil
}
