package natsauth

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cbcast/cbcast/internal/subject"
)

// A User is one that was made.
type User struct {
	Name   string
	Key    string    // public
	Until  time.Time // zero: it does not expire
	Creds  string    // file with the JWT and the key
	Env    string    // file with the environment
	Tenant string
	Run    string
}

// NewUser makes a user of a tenant's account, with its key and a JWT that ends after
// life, 0 for never. It needs the account's JWT and its signing key, and no other part
// of the store. g.Inbox is set.
func (s Store) NewUser(tenant string, g Grant, life time.Duration) (User, error) {
	u := User{Name: subject.Token(tenant) + "-" + string(g.Role), Tenant: tenant, Run: g.Run}
	g.Inbox, g.Partitions = inbox(tenant, string(g.Role)), s.Partitions
	switch {
	case g.Role == Edge && g.Run == "":
		return u, errors.New("an edge is made for a run")
	case g.Role == Edge:
		u.Name, g.Inbox, g.Tenant = subject.Token(g.Run), inbox(g.Run), tenant
	}
	p, err := g.Permissions()
	if err != nil {
		return u, err
	}
	account, err := s.account(tenant)
	if err != nil {
		return u, fmt.Errorf("%w; cbcast auth tenant makes it", err)
	}
	signing, err := s.oldKey(SigningKey(tenant), nkeys.PrefixByteAccount)
	if err != nil {
		return u, err
	}
	if !account.SigningKeys.Contains(public(signing)) {
		return u, fmt.Errorf("the key %s signs no users of %s any more", s.keyFile(SigningKey(tenant)), account.Name)
	}
	creds, err := s.credentials(&u, account.Subject, signing, p, life)
	if err != nil {
		return u, fmt.Errorf("make user %s: %w", u.Name, err)
	}
	return u, s.putUser(&u, g, creds)
}

func (s Store) credentials(u *User, account string, signing nkeys.KeyPair, p Permissions, life time.Duration) ([]byte, error) {
	key, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	defer key.Wipe()
	u.Key = public(key)
	c := jwt.NewUserClaims(u.Key)
	c.Name, c.IssuerAccount = u.Name, account
	if life > 0 {
		u.Until = time.Now().Add(life)
		c.Expires = u.Until.Unix()
	}
	c.Pub.Allow = sorted(p.Publish)
	c.Sub.Allow = sorted(p.Subscribe)
	c.Pub.Deny = sorted(p.Deny)
	var wrong jwt.ValidationResults
	if c.Validate(&wrong); wrong.IsBlocking(true) {
		return nil, errors.Join(wrong.Errors()...)
	}
	text, err := c.Encode(signing)
	if err != nil {
		return nil, err
	}
	seed, err := key.Seed()
	if err != nil {
		return nil, err
	}
	return jwt.FormatUserConfig(text, seed)
}

// putUser writes a user's files. Those of a run are made once: whoever uses them a
// second time has another run.
func (s Store) putUser(u *User, g Grant, creds []byte) (err error) {
	if u.Creds, err = filepath.Abs(s.path("creds", u.Name+".creds")); err != nil {
		return err
	}
	u.Env = s.path("env", u.Name+".env")
	vars := [][2]string{{"CBCAST_NATS_CREDS", u.Creds}, {"CBCAST_NATS_INBOX_PREFIX", g.Inbox}, {"CBCAST_TENANT", u.Tenant}}
	if u.Run != "" {
		if _, err := os.Stat(u.Creds); err == nil {
			return fmt.Errorf("%s exists: run %s has been prepared before", u.Creds, u.Run)
		}
		vars = append(vars, [2]string{"CBCAST_RUN_ID", u.Run})
	}
	if err := write(u.Creds, creds); err != nil {
		return err
	}
	return write(u.Env, s.env(vars...))
}
