package natsauth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cbcast/cbcast/internal/subject"
)

// Names of the keys in a store.
const (
	operatorKey = "operator"
	systemKey   = "system-account"
)

func accountKey(tenant string) string { return subject.Token(tenant) + "-account" }

// SigningKey is the name of the key that signs a tenant's users: all that a machine
// which mints them needs, beside the account's JWT.
func SigningKey(tenant string) string { return subject.Token(tenant) + "-signing" }

func (s Store) accountFile(tenant string) string {
	return s.path("accounts", subject.Token(tenant)+".jwt")
}

// Init makes an operator and its system account, and the server's configuration. It
// may be called again.
func (s Store) Init() error {
	op, err := s.key(operatorKey, nkeys.PrefixByteOperator)
	if err != nil {
		return err
	}
	sys, err := s.key(systemKey, nkeys.PrefixByteAccount)
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.path("operator.jwt")); errors.Is(err, fs.ErrNotExist) {
		c := jwt.NewOperatorClaims(public(op))
		c.Name = "cbcast"
		c.SystemAccount = public(sys)
		if err := s.sign(s.path("operator.jwt"), c, op); err != nil {
			return err
		}
		a := jwt.NewAccountClaims(public(sys))
		a.Name = "SYS"
		if err := s.sign(s.path("accounts", "_system.jwt"), a, op); err != nil {
			return err
		}
	}
	return s.operatorConf(public(sys))
}

func (s Store) sign(file string, c jwt.Claims, by nkeys.KeyPair) error {
	text, err := c.Encode(by)
	if err == nil {
		err = write(file, []byte(text+"\n"))
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", file, err)
	}
	return nil
}

// operatorConf writes nats.conf, and accounts.conf with every account.
func (s Store) operatorConf(system string) error {
	names, err := s.names("accounts", ".jwt")
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# Made by cbcast auth: every account's JWT.\nresolver_preload: {\n")
	for _, name := range names {
		text, err := os.ReadFile(s.path("accounts", name+".jwt"))
		if err != nil {
			return err
		}
		c, err := jwt.DecodeAccountClaims(strings.TrimSpace(string(text)))
		if err != nil {
			return fmt.Errorf("account %s: %w", name, err)
		}
		fmt.Fprintf(&b, "  # %s\n  %s: %s\n", c.Name, c.Subject, strings.TrimSpace(string(text)))
	}
	b.WriteString("}\n")
	if err := write(s.path("accounts.conf"), []byte(b.String())); err != nil {
		return fmt.Errorf("write accounts.conf: %w", err)
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	return s.conf(fmt.Sprintf("operator: %q\nsystem_account: %s\nresolver: MEMORY\ninclude ./accounts.conf\n",
		filepath.Join(dir, "operator.jwt"), system))
}

// A Tenant is the account of a tenant.
type Tenant struct {
	Name    string
	MaxDisk int64 // bytes of its streams; 0 is as much as the server has
	// Rotate makes a new key to sign users with: whoever was let in by the old one is
	// shut out.
	Rotate bool
}

// PutTenant makes a tenant's account, or changes it, and the server's configuration.
func (s Store) PutTenant(t Tenant) error {
	op, err := s.oldKey(operatorKey, nkeys.PrefixByteOperator)
	if err != nil {
		return fmt.Errorf("%w; cbcast auth init makes an operator", err)
	}
	key, err := s.key(accountKey(t.Name), nkeys.PrefixByteAccount)
	if err != nil {
		return err
	}
	make1 := s.key
	if t.Rotate {
		make1 = s.newKey
	}
	signing, err := make1(SigningKey(t.Name), nkeys.PrefixByteAccount)
	if err != nil {
		return err
	}
	c, err := s.account(t.Name)
	if errors.Is(err, fs.ErrNotExist) {
		c, err = jwt.NewAccountClaims(public(key)), nil
	}
	if err != nil {
		return err
	}
	c.Name = "cbcast_" + subject.Token(t.Name)
	c.SigningKeys = jwt.SigningKeys{}
	c.SigningKeys.Add(public(signing))
	disk := t.MaxDisk
	if disk == 0 {
		disk = jwt.NoLimit
	}
	c.Limits.JetStreamLimits = jwt.JetStreamLimits{
		DiskStorage: disk, MemoryStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
	}
	return s.putAccount(t.Name, c, op)
}

func (s Store) account(tenant string) (*jwt.AccountClaims, error) {
	text, err := os.ReadFile(s.accountFile(tenant))
	if err != nil {
		return nil, fmt.Errorf("account of tenant %s: %w", tenant, err)
	}
	c, err := jwt.DecodeAccountClaims(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("account of tenant %s: %w", tenant, err)
	}
	return c, nil
}

func (s Store) putAccount(tenant string, c *jwt.AccountClaims, op nkeys.KeyPair) error {
	if err := s.sign(s.accountFile(tenant), c, op); err != nil {
		return err
	}
	sys, err := s.oldKey(systemKey, nkeys.PrefixByteAccount)
	if err != nil {
		return err
	}
	return s.operatorConf(public(sys))
}

// Revoke shuts a user out, by its public key: every credential made for it up to now.
func (s Store) Revoke(tenant, user string) error {
	if !nkeys.IsValidPublicUserKey(user) {
		return fmt.Errorf("%q is no public key of a user (U…); it stands in the creds file's JWT, and where the user was made", user)
	}
	op, err := s.oldKey(operatorKey, nkeys.PrefixByteOperator)
	if err != nil {
		return err
	}
	c, err := s.account(tenant)
	if err != nil {
		return err
	}
	// A JWT's own time is in whole seconds: one that was made in this second counts.
	c.RevokeAt(user, time.Now().Add(time.Second))
	return s.putAccount(tenant, c, op)
}
