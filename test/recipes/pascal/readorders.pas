// readorders MIRROR_DB SEQ_FILE: every new event with its order and items. Run it every few seconds.
// fpc readorders.pas
program readorders;
{$mode objfpc}{$H+}
uses SysUtils, Classes, sqldb, sqlite3conn, sqlite3dyn;

var
  Mirror: TSQLite3Connection;
  Events, Items: TSQLQuery;
  Seqs, Orders, SeqFile: TStringList;
  Order: string;
  I: Integer;

function Query(const Sql: string): TSQLQuery;
begin
  Result := TSQLQuery.Create(Mirror);
  Result.DataBase := Mirror;
  Result.SQL.Text := Sql;
end;

begin
  SeqFile := TStringList.Create;
  if FileExists(ParamStr(2)) then SeqFile.LoadFromFile(ParamStr(2)) else SeqFile.Add('0');
  Seqs := TStringList.Create;
  Orders := TStringList.Create;

  SqliteDefaultLibrary := 'libsqlite3.so.0';
  Mirror := TSQLite3Connection.Create(nil);
  Mirror.DatabaseName := ParamStr(1);
  Mirror.OpenFlags := [sofReadOnly];
  Mirror.Transaction := TSQLTransaction.Create(Mirror);  // Order and items of the same moment.
  Mirror.Open;
  sqlite3_busy_timeout(Mirror.Handle, 5000);
  Events := Query('SELECT e.seq, o.order_id, o.code, o.status FROM order_events e JOIN orders o USING (order_id)' +
    ' WHERE e.seq > :after ORDER BY e.seq LIMIT 100');
  Items := Query('SELECT product_external_id, product_name, CAST(quantity AS TEXT) AS quantity FROM order_items' +
    ' WHERE order_id = :id ORDER BY line');
  Events.ParamByName('after').AsLargeInt := StrToInt64(SeqFile[0]);
  Events.Open;
  while not Events.EOF do
  begin
    Order := Format('#%s %s %s', [Events.FieldByName('code').AsString, Events.FieldByName('order_id').AsString,
      Events.FieldByName('status').AsString]);
    Items.ParamByName('id').AsString := Events.FieldByName('order_id').AsString;
    Items.Open;
    while not Items.EOF do
    begin
      Order += Format(LineEnding + '  %s x %s (%s)', [Items.FieldByName('quantity').AsString,
        Items.FieldByName('product_name').AsString, Items.FieldByName('product_external_id').AsString]);
      Items.Next;
    end;
    Items.Close;
    Seqs.Add(Events.FieldByName('seq').AsString);
    Orders.Add(Order);
    Events.Next;
  end;
  Mirror.Free;                                           // No lock is held while the POS works.

  for I := 0 to Orders.Count - 1 do
  begin
    WriteLn(Orders[I]);                                  // Book it here; it may come twice after a crash.
    SeqFile[0] := Seqs[I];
    SeqFile.SaveToFile(ParamStr(2) + '.new');
    RenameFile(ParamStr(2) + '.new', ParamStr(2));
  end;
end.
