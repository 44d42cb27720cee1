# python3 till.py: books orders of the mirror, hands over counts and acknowledges by the inbox, all in SQL.
# Python 3.7 or newer, with ledger.py.
import contextlib, sqlite3, sys, time
from ledger import ENV, book, debts, paid, place, sell_and_prepare


def connect(name, mode):
    uri = 'file:%s?mode=%s' % (ENV[name], mode)
    return contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5, isolation_level=None))


def read_page():
    """A page of events with their orders and lines, of one moment; no lock is held while the till works.
    A feed that ends below the till's place was made anew, and is read from its beginning."""
    with connect('TILL_MIRROR', 'ro') as mirror:
        mirror.execute('BEGIN')
        events = mirror.execute('''SELECT e.seq, e.order_id, o.status, o.store_external_id, o.amount_to_pay,
              CASE WHEN o.is_scheduled THEN o.scheduled_for END
            FROM order_events e LEFT JOIN orders o USING (order_id) WHERE e.seq > (SELECT CASE WHEN seq < ? THEN 0 ELSE ? END
              FROM sqlite_sequence WHERE name = 'order_events') ORDER BY e.seq LIMIT 100''', (place(), place())).fetchall()
        lines = 'SELECT sku, product_external_id, quantity FROM order_items WHERE order_id = ?'
        return [event + (mirror.execute(lines, (event[1],)).fetchall(),) for event in events]


def hand_over():
    """Counts first, then acknowledgements, in one transaction on the inbox; the ledger strikes them off after it."""
    owed, counts = debts()
    if not owed and not counts:
        return
    with connect('TILL_INBOX', 'rw') as inbox:
        inbox.execute('PRAGMA synchronous = EXTRA')  # Survives a power cut. Before SQLite 3.12: FULL.
        inbox.execute('BEGIN IMMEDIATE')
        for count in counts:
            try:
                inbox.execute('INSERT INTO stock_changes (qty, external_id, subsidiary_external_id) VALUES (?, ?, ?)',
                              count + (ENV['TILL_STORE'],))
            except sqlite3.IntegrityError as error:  # The others go on.
                print('A person has to look: %s: %s' % (count[1], error), file=sys.stderr)
        inbox.executemany('INSERT INTO order_acks (order_id, seq) VALUES (?, ?)', owed)
        inbox.execute('COMMIT')
    paid(owed, counts)


while True:
    try:
        sell_and_prepare()
        page = read_page()
        book(page)
        hand_over()
        if not page:
            time.sleep(1)
    except sqlite3.OperationalError as error:  # Locked, or just made anew: what is owed stands in the ledger.
        print(error, file=sys.stderr)
        time.sleep(1)
