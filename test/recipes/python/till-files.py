# python3 till-files.py: books orders of a file that tillsync writes, hands over counts by a file, acknowledges.
# Python 3.7 or newer, with ledger.py; tillsync is a command of the same machine.
import csv, json, os, subprocess, sys, time
from ledger import ENV, begin_again, book, debts, paid, place, sell_and_prepare

COUNTS = os.path.join(ENV['TILL_DIRECTORY'], 'counts.csv')


def tillsync(*words, text=None, done=(0,)):
    """What the command prints; any other exit code is a failure, and is tried again."""
    result = subprocess.run(('tillsync',) + words, input=text, stdout=subprocess.PIPE, encoding='utf-8')
    if result.returncode not in done:
        raise OSError('tillsync %s ended with %s' % (words[0], result.returncode))
    return result.stdout


def read_page():
    """The orders that changed since, each in its newest state."""
    found = json.loads(tillsync('order', 'list', '--after', str(place()), '--limit', '500', '--json', done=(0, 1)))
    if 'error' in found:
        if found['error']['code'] == 'feed-restarted':  # The mirror was made anew: all orders come again.
            begin_again()
        raise OSError(found['error']['message'])
    return [(order['seq'], order['orderId'], order['status'], order['storeExternalId'], order['amountToPay'],
             order['scheduledFor'] if order['isScheduled'] else None,
             [(item['sku'], item['productExternalId'], item['quantity']) for item in order['items']])
            for order in found['orders']]


def hand_over():
    """Counts first, then acknowledgements. Exit code 3: some were refused, which standard error names for a person."""
    owed, counts = debts()
    if counts:
        with open(COUNTS, 'w', encoding='utf-8', newline='') as file:
            csv.writer(file).writerow(('qty', 'external_id', 'subsidiary_external_id'))
            csv.writer(file).writerows(count + (ENV['TILL_STORE'],) for count in counts)
        tillsync('push', 'stock', COUNTS, done=(0, 3))
    if owed:
        acks = [{'orderId': order_id, 'seq': seq} for order_id, seq in owed]
        tillsync('order', 'ack', text=json.dumps(acks), done=(0, 3))
    paid(owed, counts)


while True:
    try:
        sell_and_prepare()
        page = read_page()
        book(page)
        hand_over()
        if not page:
            time.sleep(1)
    except (OSError, ValueError) as error:  # Locked, or just made anew: what is owed stands in the ledger.
        print(error, file=sys.stderr)
        time.sleep(1)
