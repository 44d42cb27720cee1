# The till's own ledger, the same for each way: what lay on the shelf, what orders and sales took of it, what is owed.
import datetime, os, sqlite3, sys

ENV = os.environ
OWN_SKU = '(SELECT CASE count(*) WHEN 1 THEN min(sku) END FROM stock WHERE external_id = ?)'
TAKES_NOTHING = ('pending', 'payment-pending', 'cancel', 'refund', 'payment-canceled')
db = sqlite3.connect(os.path.join(ENV['TILL_DIRECTORY'], 'till.db'), isolation_level=None)
db.executescript('''PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, external_id TEXT, qty REAL, told REAL);
    CREATE TABLE IF NOT EXISTS taken (by TEXT, line INTEGER, sku TEXT, qty REAL, PRIMARY KEY (by, line));
    CREATE INDEX IF NOT EXISTS taken_by_sku ON taken (sku);
    CREATE TABLE IF NOT EXISTS bookings (order_id TEXT PRIMARY KEY, total, due TEXT, prepared INTEGER DEFAULT 0);
    CREATE TABLE IF NOT EXISTS owed (order_id TEXT PRIMARY KEY, seq INTEGER);
    CREATE TABLE IF NOT EXISTS place (seq INTEGER);
    INSERT INTO place SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM place);
    CREATE VIEW IF NOT EXISTS counts AS SELECT * FROM (SELECT external_id, told,
        max(0, qty - (SELECT total(qty) FROM taken WHERE taken.sku = stock.sku)) AS qty FROM stock) WHERE qty <> told;''')


def rows_of(name):
    with open(ENV[name], encoding='utf-8', newline='\n') as file:
        return [line.rstrip('\n').split('\t') for line in file if line.endswith('\n')]


def report(*cells):
    """An order that was booked, at first or with another total, or is to be prepared now."""
    with open(ENV['TILL_REPORT'], 'a', encoding='utf-8', newline='\n') as file:
        file.write('\t'.join('' if cell is None else str(cell) for cell in cells) + '\n')


def place():
    return db.execute('SELECT seq FROM place').fetchone()[0]


def begin_again():
    db.execute('UPDATE place SET seq = 0')


def book(events):
    """Books in one transaction what each order takes now, in place of what it took before."""
    with db:
        db.execute('BEGIN IMMEDIATE')
        for seq, order_id, status, store, total, due, items in events:
            db.execute('DELETE FROM taken WHERE by = ?', (order_id,))
            if store == ENV['TILL_STORE'] and status not in TAKES_NOTHING:
                known = db.execute('SELECT total FROM bookings WHERE order_id = ?', (order_id,)).fetchone()
                if known != (total,):
                    report('booked', order_id, total)
                db.execute('INSERT OR IGNORE INTO bookings (order_id) VALUES (?)', (order_id,))
                db.execute('UPDATE bookings SET total = ?, due = ? WHERE order_id = ?', (total, due, order_id))
                for line, (sku, external_id, qty) in enumerate(items):
                    db.execute('INSERT INTO taken VALUES (?, ?, coalesce(?, %s), ?)' % OWN_SKU,
                               (order_id, line, sku, external_id, qty))
                unknown = 'SELECT 1 FROM taken WHERE by = ? AND sku IS NULL'
                if db.execute(unknown, (order_id,)).fetchone():  # Not acknowledged: tillsync keeps its pieces back.
                    print('A person has to look: %s has an article that is not known' % order_id, file=sys.stderr)
                else:
                    db.execute('INSERT OR REPLACE INTO owed VALUES (?, ?)', (order_id, seq))
            else:
                db.execute('DELETE FROM bookings WHERE order_id = ?', (order_id,))
            db.execute('UPDATE place SET seq = ?', (seq,))


def sell_and_prepare():
    """Notes new sales over the counter, and reports the orders whose time has come."""
    for number, sku, qty in rows_of('TILL_SALES'):
        db.execute('INSERT OR IGNORE INTO taken VALUES (?, 0, ?, ?)', ('sale ' + number, sku, float(qty)))
    lead = datetime.timedelta(seconds=float(ENV.get('TILL_LEAD', 0)))  # Prepared this long before its time.
    latest = (datetime.datetime.now(datetime.timezone.utc) + lead).isoformat(timespec='milliseconds')
    due = 'SELECT order_id FROM bookings WHERE prepared = 0 AND (due IS NULL OR due <= ?)'
    for (order_id,) in db.execute(due, (latest,)).fetchall():
        report('prepare', order_id)
        db.execute('UPDATE bookings SET prepared = 1 WHERE order_id = ?', (order_id,))


def debts():
    """What tillsync is not told yet: acknowledgements, and counts that contain their orders."""
    owed = db.execute('SELECT order_id, seq FROM owed').fetchall()
    return owed, db.execute('SELECT qty, external_id FROM counts').fetchall()


def paid(owed, counts):
    with db:
        db.execute('BEGIN IMMEDIATE')
        db.executemany('UPDATE stock SET told = ? WHERE external_id = ?', counts)
        db.executemany('DELETE FROM owed WHERE order_id = ? AND seq = ?', owed)


for sku, external_id, _name, qty, _price in rows_of('TILL_ARTICLES')[1:]:
    db.execute('INSERT OR IGNORE INTO stock VALUES (?, ?, ?, ?)', (sku, external_id, float(qty), float(qty)))
