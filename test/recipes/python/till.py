# python3 till.py: books online orders from the mirror, hands over the counts and acknowledges by the inbox, all in SQL.
# Python 3.7 or newer; its ledger is till.db in TILL_DIRECTORY.
import datetime, os, sqlite3, sys, time

ENV = os.environ
UNPAID = ('pending', 'payment-pending')
UNDONE = ('cancel', 'refund', 'payment-canceled')
db = sqlite3.connect(os.path.join(ENV['TILL_DIRECTORY'], 'till.db'), isolation_level=None)
db.executescript('''PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, external_id TEXT, qty REAL, told REAL);
    CREATE TABLE IF NOT EXISTS taken (order_id TEXT, sku TEXT, qty REAL);
    CREATE TABLE IF NOT EXISTS tickets (order_id TEXT PRIMARY KEY, total, due TEXT, step INTEGER DEFAULT 0);
    CREATE TABLE IF NOT EXISTS owed (order_id TEXT PRIMARY KEY, seq INTEGER);
    CREATE TABLE IF NOT EXISTS place (name TEXT PRIMARY KEY, value INTEGER);
    INSERT OR IGNORE INTO place VALUES ('seq', 0), ('sale', 0);''')


def place(name):
    return db.execute('SELECT value FROM place WHERE name = ?', (name,)).fetchone()[0]


def rows_of(name):
    with open(ENV[name], encoding='utf-8', newline='\n') as file:
        return [line.rstrip('\n').split('\t') for line in file if line.endswith('\n')]


def read_page():
    """A page of events with their orders and items, of one moment; no lock is held while the till works."""
    mirror = sqlite3.connect('file:%s?mode=ro' % ENV['TILL_MIRROR'], uri=True, timeout=5, isolation_level=None)
    try:
        mirror.execute('BEGIN')
        events = mirror.execute('''SELECT e.seq, e.order_id, o.status, o.store_external_id, o.amount_to_pay,
              CASE WHEN o.is_scheduled THEN o.scheduled_for END
            FROM order_events e LEFT JOIN orders o USING (order_id) WHERE e.seq > ? ORDER BY e.seq LIMIT 100''',
            (place('seq'),)).fetchall()
        items = 'SELECT sku, coalesce(quantity, 0) FROM order_items WHERE order_id = ? AND sku IS NOT NULL'
        return [(event, mirror.execute(items, (event[1],)).fetchall()) for event in events]
    finally:
        mirror.close()


def book(event, items):
    """What the order took is given back, what it takes now is taken, and the place noted, in one transaction."""
    seq, order_id, status, store, total, due = event
    for sku, qty in db.execute('SELECT sku, qty FROM taken WHERE order_id = ?', (order_id,)).fetchall():
        db.execute('UPDATE stock SET qty = qty + ? WHERE sku = ?', (qty, sku))
    db.execute('DELETE FROM taken WHERE order_id = ?', (order_id,))
    if store == ENV['TILL_STORE'] and status not in UNPAID + UNDONE:
        for sku, qty in items:
            db.execute('UPDATE stock SET qty = qty - ? WHERE sku = ?', (qty, sku))
            db.execute('INSERT INTO taken VALUES (?, ?, ?)', (order_id, sku, qty))
        db.execute('INSERT OR IGNORE INTO tickets (order_id, total) VALUES (?, ?)', (order_id, total))
        db.execute('UPDATE tickets SET due = ? WHERE order_id = ?', (due, order_id))
        db.execute('INSERT OR REPLACE INTO owed VALUES (?, ?)', (order_id, seq))
    else:
        db.execute('DELETE FROM tickets WHERE order_id = ?', (order_id,))
    db.execute("UPDATE place SET value = ? WHERE name = 'seq'", (seq,))


def sell():
    for number, sku, qty in rows_of('TILL_SALES'):
        if int(number) > place('sale'):
            db.execute('BEGIN IMMEDIATE')
            db.execute('UPDATE stock SET qty = qty - ? WHERE sku = ?', (float(qty), sku))
            db.execute("UPDATE place SET value = ? WHERE name = 'sale'", (int(number),))
            db.execute('COMMIT')


def hand_over():
    """Counts first, then acknowledgements, in one transaction on the inbox; the ledger strikes them off after it."""
    owed = db.execute('SELECT order_id, seq FROM owed').fetchall()
    counts = db.execute('SELECT max(qty, 0), external_id FROM stock WHERE max(qty, 0) <> told').fetchall()
    if not owed and not counts:
        return
    inbox = sqlite3.connect('file:%s?mode=rw' % ENV['TILL_INBOX'], uri=True, timeout=5, isolation_level=None)
    try:
        inbox.execute('PRAGMA synchronous = EXTRA')  # Survives a power cut. Before SQLite 3.12: FULL.
        inbox.execute('BEGIN IMMEDIATE')
        for count in counts:
            try:
                inbox.execute('INSERT INTO stock_changes (qty, external_id, subsidiary_external_id) VALUES (?, ?, ?)',
                              count + (ENV['TILL_STORE'],))
            except sqlite3.IntegrityError as error:  # The others go on.
                print('refused, a person has to look: %s: %s' % (count[1], error), file=sys.stderr)
        inbox.executemany('INSERT INTO order_acks (order_id, seq) VALUES (?, ?)', owed)
        inbox.execute('COMMIT')
    finally:
        inbox.close()
    db.execute('BEGIN IMMEDIATE')
    db.executemany('UPDATE stock SET told = ? WHERE external_id = ?', counts)
    db.executemany('DELETE FROM owed WHERE order_id = ? AND seq = ?', owed)
    db.execute('COMMIT')


def print_tickets():
    """The kitchen's printer: a ticket is booked at once, and prepared when its time has come."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='milliseconds').replace('+00:00', 'Z')
    with open(ENV['TILL_REPORT'], 'a', encoding='utf-8', newline='\n') as report:
        for order_id, total in db.execute('SELECT order_id, total FROM tickets WHERE step = 0').fetchall():
            report.write('booked\t%s\t%s\n' % (order_id, '' if total is None else total))
            db.execute('UPDATE tickets SET step = 1 WHERE order_id = ?', (order_id,))
        due = db.execute('SELECT order_id FROM tickets WHERE step = 1 AND (due IS NULL OR due <= ?)', (now,)).fetchall()
        for (order_id,) in due:
            report.write('prepare\t%s\n' % order_id)
            db.execute('UPDATE tickets SET step = 2 WHERE order_id = ?', (order_id,))


db.execute('BEGIN IMMEDIATE')
for sku, external_id, _name, qty, _price in rows_of('TILL_ARTICLES')[1:]:
    db.execute('INSERT OR IGNORE INTO stock VALUES (?, ?, ?, ?)', (sku, external_id, float(qty), float(qty)))
db.execute('COMMIT')
while True:
    try:
        sell()
        page = read_page()
        db.execute('BEGIN IMMEDIATE')
        for event, items in page:
            book(event, items)
        db.execute('COMMIT')
        print_tickets()
        hand_over()
        if not page:
            time.sleep(1)
    except sqlite3.OperationalError as error:  # Locked, or just made anew: what is owed stands in the ledger.
        print(error, file=sys.stderr)
        if db.in_transaction:
            db.execute('ROLLBACK')
        time.sleep(1)
